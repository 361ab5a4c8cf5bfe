package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A shell is an interactive bash on a terminal of its own. It learns its commands, and reports their
// ends, over a socket that is its descriptor shellFD:
//
//   - Before each prompt, PROMPT_COMMAND calls the function __evalrun. It reports the number of the
//     last command, its exit code and the directory, and then waits for the next command. So while no
//     command is running, bash does not read its terminal, and what was typed too late is dropped
//     instead of executed.
//   - For a command, the server types one fixed line (runLine) and sends the command's number and
//     text over the socket. The line evaluates the text with shellFD closed. Bash keeps a copy of the
//     descriptor meanwhile that is closed on exec, so programs do not inherit the socket.
//   - The kernel tells the process that has sent a report, and the server accepts those of bash
//     itself only. So neither output nor a subshell nor another process can forge one.
//
// What remains possible: bash executes what the agent writes, so a command may look for the copy of
// the descriptor and write a report by a builtin, trace bash, or replace bash by another program
// (exec). The agent then lies to itself about a session of its own; it reaches nothing else.
//
// If a command removes the function or PROMPT_COMMAND, runLine restores them. If it is interrupted as
// well, or the socket is lost (exec), no report comes: calls then end by their limits, or with the
// process.
type shell struct {
	sv   *server
	term *terminal
	ctl  *os.File // our end of the socket
	tree *tree

	wake chan struct{} // has a token after a report or the end of the process

	mu     sync.Mutex // guards the fields below
	screen screen
	out    *shellOutput
	last   time.Time // of the last output
	pid    int       // of bash; 0: not known yet
	n      int       // number of the last command
	done   bool      // command n has ended
	code   int
	dir    string
	over   bool // the process has ended
	end    record

	// The fields below are used by calls only.
	open    bool // command n was started, and no call has returned its end yet
	presses int  // how often C-c has interrupted bash itself in command n
}

// A shellSlot has the session of a name.
type shellSlot struct {
	sv   *server
	busy chan struct{} // holds a token while a call is being made

	// The fields below belong to whoever holds busy.
	sh     *shell // nil: none
	id     string // of the last call, with what it returned
	result execproto.ShellResult
	text   []byte
}

// shellFD is bash's descriptor of the socket. Programs and scripts rarely use this number.
const shellFD = 43

// startLimit limits how long bash may take to start, and then to read its start files.
const startLimit = time.Minute

const (
	// setUp defines what the report needs. Set -e is off between commands and set again inside eval
	// (__evalrun_e), for two reasons: the status of eval itself must not end the shell after
	// commands such as "! true", and neither may a command of PROMPT_COMMAND. Functions and aliases of
	// the agent may have the names of builtins.
	setUp = `__evalrun(){ __evalrun_s=${__evalrun_s-$?};builtin local TMOUT IFS;` +
		`case $- in *e*)__evalrun_e=$'set -e;__evalrun_e=\n';set +e;;esac;` +
		`[ -z "${__evalrun_v-}" ]||builtin unset -f set;builtin unset __evalrun_v;` +
		`builtin printf '%s\0%s\0%s\0' "${__evalrun_n-0}" "$__evalrun_s" "$PWD">&43;` +
		`__evalrun_q=$__evalrun_s;builtin unset __evalrun_s;` +
		`[ -z "${PS1-}${PS2-}" ]||builtin printf -v PS1 ''&&builtin printf -v PS2 '';` +
		`while :;do IFS= builtin read -r -d '' -u 43 __evalrun_n&&IFS= builtin read -r -d '' -u 43 __evalrun_c&&` +
		`builtin return 0;` +
		`[ $? -gt 128 ]||builtin exit 1;done;};__evalrun_r(){ builtin return $__evalrun_q;};` +
		`case ${PROMPT_COMMAND-} in *__evalrun*);;*)` +
		`PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND;}{ __evalrun;} 2>&-";;esac;`
	startLine = `{ set +o history +H;history -c;PS1= PS2=;declare +x PS1;unset MAILCHECK;` + setUp + "} 2>&-\n"
	// __evalrun_r makes the exit code of the last command the value of $?. It is also a word that
	// bash does not take for a keyword: after a syntax error, the parser takes the first word of the
	// next line for an argument. The status of an inverted eval does not count for set -e, and
	// PIPESTATUS has it as it was.
	//
	// After an unclosed "$(" or quote eval returns 1. The second eval finds out: it parses the text and
	// executes nothing of it.
	runLine = `__evalrun_r 2>&-;! builtin eval "${__evalrun_e-}$__evalrun_c" 43>&-;{ __evalrun_s=${PIPESTATUS[0]};` +
		`[ $__evalrun_s != 1 ]||builtin eval "case x in y):"$'\n'"$__evalrun_c"$'\n\nesac'||__evalrun_s=2;` +
		setUp + "} 2>&-\n"
	// keepStream makes "set -o vi" and the like do nothing in a command that seems to have them. With
	// them, bash (5.2 and before) starts to read from its terminal in the middle of eval
	// and crashes. Line editing has no use here.
	keepStream = `__evalrun_v=1;set(){ case "$*" in [-+]'o vi'|[-+]'o emacs');;*)builtin set "$@";;esac;}` + "\n"
	// rescueLine restores the report after an interrupted command that has removed it.
	rescueLine = "{ __evalrun_s=130;" + setUp + "} 2>&-\n"
	startFiles = `for __evalrun_f in /etc/bash.bashrc ~/.bashrc; do [ -r "$__evalrun_f" ] && . "$__evalrun_f"; done; ` +
		`unset __evalrun_f; set +o history +H; :`
)

func init() {
	handlers[execproto.KindShell] = func(sv *server, st *execproto.Stream, body []byte) {
		kill := make(chan struct{})
		var once sync.Once
		st.Control = func(kind byte, b []byte) {
			if kind == execproto.KindReset || kind == execproto.KindSignal && execproto.NewDec(b).Int() < 0 {
				once.Do(func() { close(kill) })
			}
		}
		go func() {
			var text []byte
			e := execproto.OK()
			req, err := execproto.DecodeShell(body)
			if err == nil {
				var x execproto.ShellResult
				x, text, err = sv.shellCall(&req, kill)
				x.Encode(&e)
			}
			if err == nil {
				st.Send(execproto.KindData, text)
			}
			sv.answer(st, func() (execproto.Enc, error) { return e, err })
		}()
	}
}

var errKilled = errors.New("the call was given up, and its shell killed")

func (sv *server) shellCall(req *execproto.Shell, kill chan struct{}) (x execproto.ShellResult,
	text []byte, err error) {
	begun := time.Now()
	if strings.IndexByte(req.Text, 0) >= 0 {
		return x, nil, errors.New("a NUL byte in the text for a shell")
	}
	sv.mu.Lock()
	s := sv.shells[req.Name]
	if s == nil {
		s = &shellSlot{sv: sv, busy: make(chan struct{}, 1)}
		sv.shells[req.Name] = s
	}
	sv.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
	case <-kill:
		return x, nil, errKilled
	}
	defer func() { <-s.busy }()
	if req.ID != "" && req.ID == s.id {
		return s.result, s.text, nil
	}
	s.id, s.text = "", nil
	x, text, err = s.call(req, kill, begun)
	x.Wall = time.Since(begun)
	x.OOM = err == nil && sv.usage.killed()
	if err == nil && req.ID != "" {
		s.id, s.result, s.text = req.ID, x, text
	}
	return x, text, err
}

func (s *shellSlot) call(req *execproto.Shell, kill chan struct{}, begun time.Time) (x execproto.ShellResult,
	text []byte, err error) {
	x.Code = -1
	sh := s.sh
	if sh != nil && !s.sv.exists(sh.tree) {
		sh.waitEnded() // KillAll has returned; watch is about to say so
	}
	var rest []byte // of a command that nobody has seen the end of
	if sh != nil && sh.ended() && (!sh.open || req.Op == execproto.ShellRun) {
		rest = sh.take(&x)
		s.close()
		sh = nil
	}
	switch {
	case req.Op == execproto.ShellLeave:
		if x.End = execproto.ShellIdle; sh == nil {
			return x, nil, nil
		}
		if sh.open && !sh.finished() {
			x.End = execproto.ShellBusy
			return x, nil, nil
		}
		// Killed, bash tells none of its jobs.
		signalDescendant(sh.pid, sh.tree.pid, syscall.SIGKILL)
		sh.waitEnded()
		x.End = execproto.ShellExited
		text = sh.take(&x)
		s.close()
		return x, text, nil
	case req.Op == execproto.ShellReset:
		x.End = execproto.ShellExited
		if sh == nil {
			return x, nil, nil
		}
		if !sh.kill() {
			return x, nil, errAlive
		}
		text = sh.take(&x)
		s.close()
		return x, text, nil
	case sh == nil && req.Op != execproto.ShellRun:
		x.End = execproto.ShellIdle
		return x, nil, nil
	case sh == nil:
		if err := s.start(req, kill); err != nil {
			return x, nil, err
		}
		sh, x.Began = s.sh, true
		sh.mu.Lock()
		sh.out.add(rest)
		sh.mu.Unlock()
	}
	sh.mu.Lock()
	sh.out.limit(req)
	running := sh.open && !sh.done && !sh.over
	sh.mu.Unlock()
	switch {
	case req.Op == execproto.ShellRun && running:
		x.End = execproto.ShellBusy
		return x, sh.take(&x), nil
	case req.Op == execproto.ShellRun:
		sh.run(req.Text)
	case !sh.open:
		x.End = execproto.ShellIdle
		return x, nil, nil
	case req.Op == execproto.ShellInput && running:
		sh.term.typed([]byte(req.Text + "\n"))
	case req.Op == execproto.ShellKey && running:
		sh.press(req.Text)
	}
	if x.End, err = sh.wait(req, kill, begun); err != nil {
		if errors.Is(err, errKilled) {
			s.close()
		}
		return x, nil, err
	}
	text = sh.take(&x)
	switch x.End {
	case execproto.ShellCompleted:
		sh.open = false
		x.Code = sh.code
	case execproto.ShellExited:
		x.Code, x.Signal = sh.end.result()
		s.close()
	}
	return x, text, nil
}

// close releases a session. Processes that it has left behind go on, and what they write to the
// terminal is dropped.
func (s *shellSlot) close() {
	sh := s.sh
	if sh == nil {
		return
	}
	s.sh = nil
	sh.ctl.Close()
	if !s.sv.exists(sh.tree) {
		sh.term.close()
		return
	}
	sh.mu.Lock()
	sh.screen = screen{out: func([]byte) {}}
	sh.mu.Unlock()
	go func() {
		<-sh.tree.gone
		sh.term.close()
	}()
}

// start starts bash, with its start files. If these do not end, or end bash, it is started again
// without them.
func (s *shellSlot) start(req *execproto.Shell, kill chan struct{}) error {
	for _, text := range []string{startFiles, ":"} {
		sh, err := s.sv.bootShell(req, kill)
		if err != nil {
			return err
		}
		s.sh = sh
		sh.run(text)
		limited := execproto.Shell{Timeout: startLimit}
		end, err := sh.wait(&limited, kill, time.Now())
		if err == nil && end == execproto.ShellCompleted {
			sh.open = false
			var x execproto.ShellResult
			sh.take(&x) // what the start files have printed
			if x.Full != "" {
				os.Remove(x.Full)
			}
			return nil
		}
		sh.kill()
		s.close()
		if err != nil {
			return err
		}
	}
	return errors.New("bash does not start")
}

// run starts a command.
func (sh *shell) run(text string) {
	sh.mu.Lock()
	sh.n++
	n := sh.n
	sh.done, sh.open, sh.presses = false, true, 0
	sh.screen.begin()
	sh.mu.Unlock()
	for _, option := range []string{"-o vi", "+o vi", "-o emacs", "+o emacs"} {
		if strings.Contains(text, option) {
			text = keepStream + text
			break
		}
	}
	_ = sh.term.reset() // it fails with the terminal, as typing does
	sh.term.typed([]byte(runLine))
	// Bash reads the command byte by byte; one that does not read any more has lost the socket.
	sh.ctl.SetWriteDeadline(time.Now().Add(time.Minute))
	_, _ = sh.ctl.Write([]byte(itoa(n) + "\x00" + text + "\x00"))
}

// press presses a control key.
func (sh *shell) press(key string) {
	if key == "" {
		return
	}
	c := key[0]
	if c == '?' {
		c = 0x7f
	} else {
		c &= 0x1f
	}
	sh.mu.Lock()
	pid := sh.pid
	sh.mu.Unlock()
	if c == 3 && sh.term.foreground() == pid {
		// C-c interrupts bash itself, which goes to its prompt and reports. If it was in vain before,
		// the command has removed the report, and bash reads this line. (Or it has trapped the signal;
		// the next C-c is one again.)
		if sh.presses++; sh.presses%2 == 0 {
			sh.term.typed([]byte(rescueLine))
			return
		}
	}
	sh.term.typed([]byte{c})
}

// wait waits for the end of a call.
func (sh *shell) wait(req *execproto.Shell, kill chan struct{}, begun time.Time) (end uint64, err error) {
	var hard, quiet <-chan time.Time
	if req.Timeout > 0 {
		t := time.NewTimer(req.Timeout - time.Since(begun))
		defer t.Stop()
		hard = t.C
	}
	var q *time.Timer
	if req.Quiet > 0 {
		q = time.NewTimer(req.Quiet)
		defer q.Stop()
		quiet = q.C
	}
	for {
		sh.mu.Lock()
		over, done, last := sh.over, sh.done, sh.last
		sh.mu.Unlock()
		switch {
		case done:
			return execproto.ShellCompleted, nil
		case over:
			return execproto.ShellExited, nil
		}
		select {
		case <-sh.wake:
		case <-hard:
			return execproto.ShellTimeout, nil
		case <-quiet:
			if last.Before(begun) {
				last = begun
			}
			left := req.Quiet - time.Since(last)
			if left <= 0 {
				return execproto.ShellQuiet, nil
			}
			q.Reset(left)
		case <-kill:
			if !sh.kill() {
				return 0, errAlive
			}
			return 0, errKilled
		}
	}
}

// finished reports whether the last command has ended.
func (sh *shell) finished() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.done
}

func (sh *shell) ended() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.over
}

// kill kills all processes of the session.
func (sh *shell) kill() bool {
	if !sh.sv.killTree(sh.tree, killLimit) {
		return false
	}
	sh.waitEnded()
	return true
}

// waitEnded waits until watch has seen the end of the process.
func (sh *shell) waitEnded() {
	for !sh.ended() {
		<-sh.wake
	}
}

// take returns the output since the last call.
func (sh *shell) take(x *execproto.ShellResult) []byte {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.screen.flush()
	x.Dir = sh.dir
	text, count, full := sh.out.take()
	x.Out, x.Full = count, full
	return text
}

// bootShell starts bash without start files and waits for its first report.
func (sv *server) bootShell(req *execproto.Shell, kill chan struct{}) (*shell, error) {
	l, err := sv.prepare(sv.shellExec(req))
	if err != nil {
		return nil, err
	}
	uid, gid := -1, -1
	if l.setUser {
		uid, gid = l.uid, l.gid
	}
	sh := &shell{sv: sv, out: newShellOutput(sv), last: time.Now(), wake: make(chan struct{}, 1)}
	sh.screen.out = sh.out.add
	sh.term, err = openTerminal(sv.ptmx(), uid, gid, terminalRows, terminalCols)
	if err == nil {
		err = sh.term.mute()
	}
	if err != nil {
		return nil, &execproto.Unsupported{What: "a persistent shell: " + err.Error()}
	}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	fail := func(err error) (*shell, error) {
		sh.term.close()
		if sh.ctl != nil {
			sh.ctl.Close()
		}
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	for i := range pair {
		if pair[i], err = highFD(pair[i], nil); err != nil {
			return fail(err)
		}
	}
	theirs = append(theirs, os.NewFile(uintptr(pair[1]), "socket"))
	unix.SetNonblock(pair[0], true)
	sh.ctl = os.NewFile(uintptr(pair[0]), "socket")
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return fail(err)
	}
	p, err := newPipe()
	if err != nil {
		return fail(err)
	}
	theirs = append(theirs, os.NewFile(uintptr(p[1]), "pipe"))
	unix.SetNonblock(p[0], true)
	status := os.NewFile(uintptr(p[0]), "pipe")
	slave := int(sh.term.slave.Fd())
	l.stdin, l.stdout, l.stderr, l.status, l.ctl, l.tty = slave, slave, slave, p[1], pair[1], true
	sh.term.typed([]byte(startLine))
	if sh.tree, err = sv.start(l, false, false); err != nil {
		status.Close()
		return fail(err)
	}
	go sh.read()
	go sh.reports()
	go sh.watch(status)
	for _, f := range theirs { // bash's end closes the socket
		f.Close()
	}
	theirs = nil

	first := execproto.Shell{Timeout: startLimit}
	end, err := sh.wait(&first, kill, time.Now())
	if err == nil && end == execproto.ShellCompleted {
		return sh, nil
	}
	if !sh.kill() && err == nil {
		err = errAlive
	}
	switch rec := sh.end; {
	case err != nil:
	case end == execproto.ShellTimeout:
		err = &execproto.Unsupported{What: "a persistent shell: its bash does not answer"}
	case rec.failed == 0 && syscall.WaitStatus(rec.status).Signal() == syscall.SIGKILL:
		err = errors.New("bash was killed while it started")
	case rec.failed == 0:
		code, sig := rec.result()
		err = &execproto.Unsupported{What: "a persistent shell: what is called bash ended at once (exit code " +
			itoa(code) + sig + ")"}
	case rec.step == stepExec:
		err = &execproto.Unsupported{What: "a persistent shell: bash cannot be started (" +
			syscall.Errno(rec.failed).Error() + "); single commands work without it"}
	case rec.step == stepDir:
		dir := req.Dir
		if dir == "" {
			dir = sv.cfg.Dir
		}
		err = errors.New("working directory " + dir + ": " + syscall.Errno(rec.failed).Error())
	default:
		err = errors.New("starting bash: " + syscall.Errno(rec.failed).Error())
	}
	return fail(err)
}

// shellExec returns the request for bash. What the sandbox's environment does not set gets a value
// that keeps programs from waiting for a person.
func (sv *server) shellExec(req *execproto.Shell) *execproto.Exec {
	x := &execproto.Exec{Args: []string{"bash", "--noediting", "--norc", "-i"}, Dir: req.Dir, User: req.User}
	set := map[string]bool{}
	for _, list := range [][]string{sv.cfg.Env, req.Env} {
		for _, kv := range list {
			k, _, _ := strings.Cut(kv, "=")
			set[k] = true
		}
	}
	for _, kv := range []string{"TERM=xterm", "PAGER=cat", "GIT_PAGER=cat"} {
		if k, _, _ := strings.Cut(kv, "="); !set[k] {
			x.Env = append(x.Env, kv)
		}
	}
	x.Env = append(append(x.Env, req.Env...), "PS1=")
	return x
}

// ptmx returns the device that makes terminals.
func (sv *server) ptmx() string {
	if sv.cfg.Root != "" { // without isolation, the devices are the host's
		return "/dev/ptmx"
	}
	return sv.path("/dev/ptmx")
}

// read reads the terminal until it is closed.
func (sh *shell) read() {
	raw, err := sh.term.master.SyscallConn()
	if err != nil {
		return
	}
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	raw.Read(func(fd uintptr) bool {
		for {
			if n := sh.readOnce(int(fd), *b); n <= 0 {
				return n < 0
			}
		}
	})
}

// readOnce reads the terminal once. It returns 0 if nothing is there, and -1 at its end.
func (sh *shell) readOnce(fd int, b []byte) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for {
		n, err := syscall.Read(fd, b)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return 0
		case err != nil || n == 0:
			return -1
		}
		sh.last = time.Now()
		sh.screen.write(b[:n])
		return n
	}
}

// drainLimit is more than a terminal holds.
const drainLimit = 256 << 10

// drain reads what was written to the terminal before now. The kernel says that nothing is there only
// after it has moved all that was written.
func (sh *shell) drain() {
	raw, err := sh.term.master.SyscallConn()
	if err != nil {
		return
	}
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	raw.Control(func(fd uintptr) {
		for all := 0; all < drainLimit; {
			n := sh.readOnce(int(fd), *b)
			if n <= 0 {
				return
			}
			all += n
		}
	})
}

// reports takes bash's reports until the socket ends.
func (sh *shell) reports() {
	raw, err := sh.ctl.SyscallConn()
	if err != nil {
		return
	}
	var have []byte
	b, oob := make([]byte, 4096), make([]byte, 256)
	for {
		var n, oobn int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, rerr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
			return rerr != unix.EAGAIN
		})
		if rerr == unix.EINTR {
			continue
		}
		if err != nil || rerr != nil || n == 0 {
			return
		}
		pid := senderOf(oob[:oobn])
		sh.mu.Lock()
		if sh.pid == 0 { // the first report: bash has not started anything yet
			sh.pid = pid
		}
		ok := pid == sh.pid
		sh.mu.Unlock()
		if !ok {
			continue
		}
		for have = append(have, b[:n]...); ; {
			f := bytes.SplitN(have, []byte{0}, 4)
			if len(f) < 4 {
				break
			}
			number, err1 := strconv.Atoi(string(f[0]))
			code, err2 := strconv.Atoi(string(f[1]))
			dir := string(f[2])
			have = append([]byte(nil), f[3]...)
			if err1 != nil || err2 != nil {
				continue
			}
			sh.report(number, code, dir)
		}
		if len(have) > 64<<10 {
			have = nil
		}
	}
}

func (sh *shell) report(number, code int, dir string) {
	sh.drain()
	sh.mu.Lock()
	if number == sh.n && !sh.done {
		sh.done, sh.code, sh.dir = true, code&0xff, dir
	}
	sh.mu.Unlock()
	sh.signal()
}

func (sh *shell) signal() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

// senderOf returns the process that has sent a message, as the kernel knows it.
func senderOf(oob []byte) int {
	ms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	pid := -1
	for i := range ms {
		if c, err := unix.ParseUnixCredentials(&ms[i]); err == nil {
			pid = int(c.Pid)
		} else if fds, err := unix.ParseUnixRights(&ms[i]); err == nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}
	return pid
}

// watch waits for the end of bash.
func (sh *shell) watch(status *os.File) {
	defer status.Close()
	var rec record
	if _, err := io.ReadFull(status, (*[unsafe.Sizeof(rec)]byte)(unsafe.Pointer(&rec))[:]); err != nil {
		<-sh.tree.gone
		rec = record{status: uint32(syscall.SIGKILL)}
	}
	sh.drain()
	sh.mu.Lock()
	sh.over, sh.end = true, rec
	sh.mu.Unlock()
	sh.signal()
}

// result returns the exit code, or -1 and the signal.
func (r *record) result() (code int, sig string) {
	ws := syscall.WaitStatus(r.status)
	if !ws.Signaled() {
		return ws.ExitStatus(), ""
	}
	if sig = unix.SignalName(ws.Signal()); sig == "" {
		sig = "SIG" + itoa(int(ws.Signal()))
	}
	return -1, sig
}

// A shellOutput keeps the first and the last part of the output since the last call.
type shellOutput struct {
	sv   *server
	head []byte
	max  int // of head
	l    limited
	full spool
	most int64 // FullLimit
}

const (
	defaultShellLimit = 1 << 20
	maxShellLimit     = 16 << 20
)

func newShellOutput(sv *server) *shellOutput {
	o := &shellOutput{sv: sv, max: defaultShellLimit / 2}
	o.l.size = defaultShellLimit / 2
	o.full = spool{sv: sv}
	o.full.setMax(0)
	return o
}

// limit sets the limits of a call. Output that is there already keeps those of the previous one.
func (o *shellOutput) limit(req *execproto.Shell) {
	n := int(min(req.Limit, maxShellLimit))
	if n <= 0 {
		n = defaultShellLimit
	}
	o.most = req.FullLimit
	if o.l.count == 0 {
		o.max, o.l.size = n/2, n-n/2
		o.full.setMax(o.most)
	}
}

func (o *shellOutput) add(b []byte) {
	o.l.count += int64(len(b))
	o.full.save(b)
	if n := min(o.max-len(o.head), len(b)); n > 0 {
		o.head = append(o.head, b[:n]...)
		b = b[n:]
	}
	o.l.hold(b)
}

// take returns what there is, and begins anew.
func (o *shellOutput) take() (text []byte, count int64, full string) {
	text, count = o.head, o.l.count
	if o.l.cut > 0 {
		text = append(text, LeftOut(o.l.cut)...)
	}
	text = append(text, o.l.tail[o.l.at:]...)
	text = append(text, o.l.tail[:o.l.at]...)
	full = o.full.end(o.l.cut > 0)
	size := o.l.size
	o.head, o.l, o.full = nil, limited{size: size}, spool{sv: o.sv}
	o.full.setMax(o.most)
	return text, count, full
}
