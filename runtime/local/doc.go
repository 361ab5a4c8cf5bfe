// Package local makes sandboxes out of Linux namespaces: no daemon, no image and no network, ready
// in a few milliseconds. It is the driver of choice for whatever needs no image.
//
// A sandbox has user, mount, pid, net, ipc, uts and cgroup namespaces of its own. Its root is a
// tmpfs with a read-only view of this machine's system folders ([skeleton] lists them) or an
// unpacked image ("dir:/path") with a tmpfs over it. Process 1 is our executor; see package isolate
// for how it becomes that. Root inside is an unprivileged uid outside, also when evalrun runs as
// root. Limits are kept by control groups where we may make them, else by resource limits of each
// process; Describe says which. Limits that the kernel counts per user are separate, too; see
// users.go.
//
// A spec's entrypoint and command run beside what is asked of the machine, and are ended by Close
// alone; a health check is waited for by Create. Services, volumes, images but unpacked ones, and
// setuid programs are refused by name.
//
// What holds when something dies:
//
//	evalrun killed         its sockets close: every process 1 ends, which ends its namespaces with all that is in them;
//	                       the spawner ends and removes control groups and entries of the state folder
//	… with an Orphan time  process 1 and the spawner go on; Find reattaches, through a socket in the state folder
//	… nobody comes         process 1 ends after the Orphan time, and the spawner removes the rest
//	spawner killed too     every process 1 ends; control groups and state entries stay until the next Reap
//	process 1 killed       the sandbox is gone; the spawner reports it and removes the rest
package local
