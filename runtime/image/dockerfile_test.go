package image

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func old() *checker {
	return &checker{about: About{Version: "20.10.24", OS: "linux", Arch: "amd64", Frontend: [2]int{1, 2}}}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, text, line string
		change           func(*checker)
	}{
		{name: "security", text: "FROM x\nRUN --security=insecure id",
			line: "line 2: RUN --security=insecure would let the build out of its sandbox"},
		{name: "host network", text: "FROM x\n\n# c\nRUN --network=host id", line: "line 4: RUN --network=host"},
		{name: "host network by a variable", text: "FROM x\nRUN --network=$N id", line: "line 2: RUN --network=$N"},
		{name: "network of old frontends", text: "FROM x\nRUN --network=none id",
			line: "line 2: RUN --network needs BuildKit's Dockerfile frontend 1.3; this engine, 20.10.24, has 1.2"},
		{name: "secret", text: "FROM x\nRUN --mount=type=secret,id=k cat /run/secrets/k",
			line: "line 2: RUN --mount=type=secret"},
		{name: "quoted secret", text: "FROM x\nRUN --mount=\"type=secret\",id=k cat",
			line: "line 2: RUN --mount=type=secret"},
		{name: "csv secret", text: "FROM x\nRUN --mount='\"type=secret\",id=k' cat",
			line: "line 2: RUN --mount=type=secret"},
		{name: "ssh in capitals", text: "FROM x\nrun --mount=TYPE=SSH git clone", line: "line 2: RUN --mount=type=ssh"},
		{name: "other mount", text: "FROM x\nRUN --mount=type=host,src=/ ls",
			line: "line 2: RUN --mount=type=host is not known"},
		{name: "onbuild", text: "FROM x\nONBUILD RUN --security=insecure id", line: "line 2: RUN --security=insecure"},
		{name: "continued flag", text: "FROM x\nRUN \\\n  # comment\n  --security=insecure id",
			line: "line 2: RUN --security=insecure"},
		{name: "backtick", text: "# escape=`\nFROM x\nRUN `\n --security=insecure id",
			line: "line 3: RUN --security=insecure"},
		{name: "double escape", text: "FROM x\nRUN echo \\\\\nRUN --security=insecure",
			line: "line 2: it ends in two escape"},
		{name: "unknown flag", text: "FROM x\nCOPY --weird=1 a b", line: "line 2: COPY --weird is not known"},
		{name: "device", text: "FROM x\nRUN --device=nvidia.com/gpu id", line: "line 2: RUN --device is not known"},
		{name: "parents", text: "FROM x\nCOPY --parents a b",
			line: "line 2: COPY --parents needs BuildKit's Dockerfile frontend 1.20"},
		{name: "frontend", text: "# syntax=evil/frontend:1\nFROM x", line: "line 1: the frontend \"evil/frontend:1\""},
		{name: "frontend behind a shebang", text: "#!/usr/bin/x\n#SYNTAX = docker.io/docker/dockerfile.evil\nFROM x",
			line: "line 2: the frontend"},
		{name: "other syntax directives", text: "// syntax=evil/frontend\nFROM x",
			line: "line 1: unknown instruction \"//\""},
		{name: "json", text: "{\"syntax\":\"evil\"}\n", line: "line 1: unknown instruction"},
		{name: "instruction", text: "FROM x\nRUM id", line: "line 2: unknown instruction \"RUM\""},
		{name: "before from", text: "RUN id\nFROM x", line: "line 1: RUN before the first FROM"},
		{name: "from variable", text: "ARG V\nFROM x:$V", line: "line 2: FROM x:$V: the variable has no value"},
		{name: "offline add", text: "FROM x\nADD https://example.org/x /x",
			line:   "line 2: ADD https://example.org/x: the build has no network",
			change: func(j *checker) { j.offline = true }},
		{name: "offline git", text: "FROM x\nADD git@github.com:a/b.git /x", line: "line 2: ADD git@github.com",
			change: func(j *checker) { j.offline = true }},
		{name: "offline variable", text: "FROM x\nADD $U /x", line: "line 2: ADD $U: the build has no network",
			change: func(j *checker) { j.offline = true }},
		{name: "offline default", text: "FROM x\nADD ${U:-f} /x", line: "line 2: ADD ${U:-f}",
			change: func(j *checker) { j.offline = true }},
		{name: "offline argument", text: "FROM x\nARG U=f\nADD [\"$U\", \"/x\"]", line: "line 3: ADD http://h.example",
			change: func(j *checker) { j.offline = true; j.args = map[string]string{"U": "http://h.example/"} }},
		{name: "metadata", text: "FROM x\nADD http://169.254.169.254/latest /x",
			line: "line 2: ADD http://169.254.169.254/latest: the engine would fetch it from its own"},
		{name: "loopback", text: "FROM x\nARG H=127.0.0.1\nADD http://$H:8080/ /x",
			line: "line 3: ADD http://127.0.0.1:8080/"},
		{name: "a base image's variable", text: "FROM x\nADD ${U} /x", line: "line 2: ADD ${U}: the variable may name"},
		{name: "a base image's host", text: "FROM x\nADD https://$H/x /x",
			line: "line 2: ADD https://$H/x: the variable may name"},
		{name: "odd loopback", text: "FROM x\nADD http://2130706433/ /x", line: "line 2"},
		{name: "ipv6", text: "FROM x\nADD http://[::ffff:10.0.0.1]/ /x", line: "line 2"},
		{name: "localhost", text: "FROM x\nADD http://localhost/ /x", line: "line 2"},
		{name: "escaped", text: "FROM x\nADD http:\\/\\/127.0.0.1/x /x",
			line: "line 2: ADD http://127.0.0.1/x: the engine would fetch it from its own"},
		{name: "escaped by a backtick", text: "# escape=`\nFROM x\nADD [\"http:`/`/127.0.0.1/x\", \"/x\"]",
			line: "line 3: ADD http://127.0.0.1/x"},
		{name: "an escaped value", text: "FROM x\nENV A=http:\\/\\/127.0.0.1/x\nADD $A /x",
			line: "line 3: ADD http://127.0.0.1/x"},
		{name: "escaped before a variable", text: "FROM x\nADD \\ht$A /x",
			line: "line 2: ADD \\ht$A: the variable may name"},
		{name: "git before a variable", text: "FROM x\nADD g$A /x", line: "line 2: ADD g$A: the variable may name"},
		{name: "if the base image has a variable", text: "FROM x\nADD ${PATH:+http://127.0.0.1/x} /x",
			line: "line 2: ADD ${PATH:+http://127.0.0.1/x}: the variable may name"},
		{name: "a carrier's network", text: "FROM x\nADD http://100.100.100.200/latest /x", line: "line 2"},
		{name: "a cloud's own address", text: "FROM x\nADD http://168.63.129.16/ /x", line: "line 2"},
		{name: "an address in an address", text: "FROM x\nADD http://[64:ff9b::7f00:1]/ /x", line: "line 2"},
		{name: "a compatible address", text: "FROM x\nADD http://[::127.0.0.1]/ /x", line: "line 2"},
		{name: "copy heredoc with variables", text: "FROM x\nCOPY <<E /x\n$HOME\nE",
			line: "line 2: variables in a here-document"},
		{name: "endless heredoc", text: "FROM x\nCOPY <<E /x\nfoo", line: "line 2: the here-document <<E has no end"},
		{name: "classic mount", text: "FROM x\nRUN --mount=type=cache,target=/c id",
			line: "line 2: RUN --mount needs BuildKit's Dockerfile frontend 1.2; the classic builder does " +
				"not know it",
			change: func(j *checker) { j.classic = true }},
		{name: "classic script", text: "FROM x\nRUN <<E\n#!/usr/bin/python3\nE",
			line: "line 2: a here-document that names its interpreter", change: func(j *checker) { j.classic = true }},
		{name: "unknown target", text: "FROM x AS a", line: "no stage \"b\"",
			change: func(j *checker) { j.target = "b" }},
		{name: "builder argument", text: "FROM x", line: "BUILDKIT_SYNTAX would steer",
			change: func(j *checker) { j.args = map[string]string{"BUILDKIT_SYNTAX": "evil"} }},
		{name: "nul", text: "FROM x\x00", line: "NUL"},
		{name: "empty", text: "# nothing\n", line: "no instruction"},
		{name: "large", text: "FROM x\n" + strings.Repeat("RUN id\n", 200_000), line: "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := old()
			if c.change != nil {
				c.change(j)
			}
			_, err := j.read(c.text)
			if err == nil || !strings.Contains(err.Error(), c.line) {
				t.Errorf("got %v\nwant %s", err, c.line)
			}
		})
	}
}

func TestRewritten(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		change           func(*checker)
		files            []hidden
	}{
		{name: "nothing to do", text: "FROM x\nRUN a && \\\n  b\n", want: "FROM x\nRUN a && \\\n  b\n"},
		{name: "syntax", text: "# syntax=docker/dockerfile:1.7-labs\n# escape=\\\nFROM x",
			want: "#\n# escape=\\\nFROM x\n"},
		{name: "crlf", text: "\ufeffFROM x\r\nRUN a \\\r\n b\r\n", want: "FROM x\nRUN a \\\n b\n"},
		{name: "a shift is no heredoc", text: "FROM x\nRUN echo $((1 <<2))\nRUN id",
			want: "FROM x\nRUN echo $((1 <<2))\nRUN id\n"},
		{name: "run heredoc", text: "FROM x\nRUN <<EOF\necho \"a\"\n# not a comment\n\nEOF\nUSER u",
			want: "FROM x\nRUN [\"/bin/sh\",\"-c\",\"echo \\\"a\\\"\\n# not a comment\\n\\n\"]\n#\n#\n#\n#\nUSER u\n"},
		{name: "fed heredoc", text: "FROM x\nSHELL [\"/bin/bash\", \"-c\"]\nRUN python3 <<-'E' > /o\n\tprint(1)\n\tE",
			want: "FROM x\nSHELL [\"/bin/bash\", \"-c\"]\nRUN [\"/bin/bash\",\"-c\",\"python3 \\u003c\\u003c-'E' " +
				"\\u003e /o\\nprint(1)\\nE\"]\n#\n#\n"},
		{name: "shell of a stage", text: "FROM x AS a\nSHELL [\"/b\"]\nFROM a\nRUN <<E\nc\nE",
			want: "FROM x AS a\nSHELL [\"/b\"]\nFROM a\nRUN [\"/b\",\"c\\n\"]\n#\n#\n"},
		{name: "copy heredoc", text: "FROM x\nCOPY --chmod=600 <<'A' <<B f /d/\n$a\nA\nb\nB",
			want:  "FROM x\nCOPY --chmod=600 .evalrun/1/A .evalrun/2/B f /d/\n#\n#\n#\n#\n",
			files: []hidden{{".evalrun/1/A", "$a\n", 0o644}, {".evalrun/2/B", "b\n", 0o644}}},
		{name: "script", text: "FROM x\nRUN <<E\n#!/usr/bin/env python3\nprint(1)\nE",
			want:  "FROM x\nRUN --mount=type=bind,source=.evalrun/1/E,target=/dev/pipes/E /dev/pipes/E\n#\n#\n#\n",
			files: []hidden{{".evalrun/1/E", "#!/usr/bin/env python3\nprint(1)\n", 0o755}}},
		{name: "hostile name", text: "FROM x\nCOPY <<../../etc/x /d/\n1\n../../etc/x",
			want: "FROM x\nCOPY .evalrun/1/x /d/\n#\n#\n", files: []hidden{{".evalrun/1/x", "1\n", 0o644}}},
		{name: "a frontend that has them", text: "FROM x\nCOPY <<A /d\n$a\nA\nRUN <<B\nb\nB",
			want:   "FROM x\nCOPY <<A /d\n$a\nA\nRUN <<B\nb\nB\n",
			change: func(j *checker) { j.about.Frontend = [2]int{1, 5} }},
		{name: "link is dropped", text: "FROM x\nCOPY --link --chown=1:1 a b", want: "FROM x\nCOPY --chown=1:1 a b\n"},
		{name: "default network is dropped", text: "FROM x\nRUN --network=default a", want: "FROM x\nRUN a\n"},
		{name: "start interval is dropped", text: "FROM x\nHEALTHCHECK --start-interval=1s --retries=3 CMD a b",
			want: "FROM x\nHEALTHCHECK --retries=3 CMD a b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := old()
			if c.change != nil {
				c.change(j)
			}
			out, err := j.read(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.d.String(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if !slices.Equal(out.files, c.files) {
				t.Errorf("files %+v", out.files)
			}
			again, err := j.read(out.d.String())
			if err != nil || again.d.String() != c.want {
				t.Errorf("read once more: %v", err)
			}
		})
	}
}

func TestBases(t *testing.T) {
	j := old()
	j.args = map[string]string{"V": "9"}
	out, err := j.read(`ARG V=1
ARG R=reg.example/x
FROM --platform=$BUILDPLATFORM ${R}:$V AS build
ARG V
COPY --from=tools:1 /t /t
COPY --from=0 /a /b
RUN --mount=type=bind,from=other:2,target=/o --mount=type=cache,target=/c id
FROM scratch AS empty
FROM BUILD AS last
COPY --from=build /x /y
FROM ${U:-alpine}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []base{{"reg.example/x:9", "linux/amd64", 3}, {"tools:1", "", 5}, {"other:2", "", 7}, {"alpine", "", 11}}
	if !slices.Equal(out.bases, want) || out.final != "alpine" {
		t.Errorf("%+v, final %s", out.bases, out.final)
	}
	j.target = "LAST"
	if out, err = j.read(out.d.String()); err != nil || out.final != "reg.example/x:9" {
		t.Errorf("target: %v, %+v", err, out)
	}
}

func TestLongHeredoc(t *testing.T) {
	script := strings.Repeat("echo 'some \\ text' # and \"more\"\n", 3000)
	out, err := old().read("FROM x\nRUN <<E\n" + script + "E\n")
	if err != nil {
		t.Fatal(err)
	}
	text := out.d.String()
	for line := range strings.Lines(text) {
		if len(line) > 16<<10 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
	d, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := jsonLines([]string{"/bin/sh", "-c", script}, '\\'); d.steps[1].rest != strings.ReplaceAll(want, "\\\n",
		"") {
		t.Error("the script is not what it was")
	}
	if _, err := old().read("FROM x\nRUN <<E\n" + script + script + "E\n"); err == nil ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("a script that no system takes as an argument: %v", err)
	}
}

// TestParseAnything: no text panics, and what is read says the same when it is written and read
// again.
func TestParseAnything(t *testing.T) {
	piece := rapid.SampledFrom([]string{"FROM x\n", "RUN a", " \\\n", "\n", "<<E", "<<-'E'", "E\n", "\tE\n", "COPY ",
		" /d/", "ADD ", "--from=x ", "--mount=type=bind ", "#", " # syntax=x", "\\", "`", "\"", "'", "ONBUILD ", "$x",
		"[\"a\"]", "# escape=`\n", "ARG A=$B\n", "\x00", "\r\n", "é"})
	rapid.Check(t, func(t *rapid.T) {
		text := "FROM x\n" + strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "")
		out, err := old().read(text)
		if err != nil {
			return
		}
		once := out.d.String()
		again, err := old().read(once)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, once, err)
		}
		if twice := again.d.String(); twice != once {
			t.Fatalf("%q became %q, then %q", text, once, twice)
		}
	})
}

func TestLineErrors(t *testing.T) {
	_, err := old().read("FROM x\nRUM id")
	if !errors.As(err, new(*lineError)) {
		t.Errorf("%T", err)
	}
}
