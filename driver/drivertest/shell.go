package drivertest

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Shell returns programs for hosts and images that contain a POSIX shell and the common commands,
// for example from busybox. refused is the path of a file that is not executable.
//
// If programs run as a container's first process, replace Run and Ignore, because such a process
// receives only the signals that it handles.
func Shell(refused string) Programs {
	return Programs{
		Run:    sh("echo ready; exec sleep 1000"),
		Ignore: sh("trap '' HUP INT QUIT TERM USR1 USR2; echo ready; exec sleep 1000"),
		Exit:   func(code int) []string { return sh(fmt.Sprintf("exit %d", code)) },
		Print:  func(out, err string) []string { return sh(`echo "$1"; echo "$2" >&2`, out, err) },
		Lines: func(from, to int) []string {
			return sh(fmt.Sprintf(`i=%d; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); done`, from, to))
		},
		Slow: func(n int, pause time.Duration) []string {
			return sh(fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); sleep %f; done`, n, pause.Seconds()))
		},
		Sleep: func(d time.Duration, code int) []string {
			return sh(fmt.Sprintf("sleep %f; exit %d", d.Seconds(), code))
		},
		Env:  func(name string) []string { return sh(fmt.Sprintf(`printf '%%s\n' "$%s"`, name)) },
		Dir:  sh("pwd"),
		User: sh(`echo "$(id -u):$(id -g)"`),
		Cat:  []string{"cat"}, LateCat: sh("sleep 0.2; exec cat"),
		Echo: func(text string) []string { return sh(`printf '%s\n' "$1"`, text) },
		Tree: sh(`trap '' TERM
			(trap '' TERM HUP; sleep 1000 & sleep 1000 & wait) &
			sleep 1000 &
			echo ready; wait; sleep 1000`),
		Leaver:  sh("sleep 1000 & (sleep 1000 & sleep 1000) & exit 0"),
		Escaper: sh(`setsid sh -c 'touch escaped; exec sleep 1000' & while [ ! -e escaped ]; do :; done; echo left`),
		Allocate: func(m bourse.MiB) []string {
			return sh(fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%d count=1 2>/dev/null && echo allocated", m<<20))
		},
		Forks: func(n int) []string {
			return sh(fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 0.3 & i=$((i+1)); done; wait", n))
		},
		Busy:     sh("echo ready; while :; do :; done"),
		Read:     func(path string) []string { return []string{"cat", path} },
		Write:    func(path, text string) []string { return sh(`printf '%s' "$2" >"$1"`, path, text) },
		Networks: sh(`sed -n 's/^ *\([^:]*\):.*/\1/p' /proc/net/dev`),
		Converse: sh(`while read -r x; do printf '%s\n' "$x"; done`),
		Terminal: sh(`[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && tty >/dev/null && : </dev/tty && echo "$TERM"`),
		Size: sh(`trap 'echo size $(stty size)' WINCH; trap 'exit 7' USR1; { read -r x </dev/tty; kill -USR1 $$; } &
			echo size $(stty size); while :; do sleep 0.1 & wait $!; done`), // a signal that arrives just before a read would be handled only after the read
		Missing: []string{"no-such-program-anywhere"},
		Refused: []string{refused},
	}
}

func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}
