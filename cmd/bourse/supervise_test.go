package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// supervised is a running "bourse supervise".
type supervised struct {
	cmd      *exec.Cmd
	tmp, dir string // where it makes its directory, and where it runs
	stdout   bytes.Buffer
	stderr   bytes.Buffer
}

func startSupervise(t *testing.T, tasks []map[string]any) *supervised {
	t.Helper()
	s := &supervised{tmp: t.TempDir(), dir: t.TempDir()}
	text, err := json.Marshal(tasks)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "tasks.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("bourse", "supervise", "tasks.json")
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.stdout, &s.stderr
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it may have ended
		_ = s.cmd.Wait()         // the same
	})
	return s
}

// pid waits for the process id that a task has written to a file.
func (s *supervised) pid(t *testing.T, file string) int {
	t.Helper()
	pid := 0
	await(t, "a process id in "+file, func() bool {
		text, err := os.ReadFile(filepath.Join(s.dir, file))
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// gone fails unless the processes end, and the directory with them.
func (s *supervised) gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, "process "+describe(pid)+" is gone", func() bool { return !alive(pid) })
	}
	await(t, "nothing is left in "+s.tmp, func() bool {
		left, err := os.ReadDir(s.tmp)
		return err == nil && len(left) == 0
	})
}

// stubborn is a task with a child that ignores signals, as it does itself.
const stubborn = "trap '' TERM INT; (trap '' TERM INT; exec sleep 1000) & echo $! >child; echo $$ >stubborn; while :; do sleep 1000; done"

// TestSuperviseLeavesNothing ends it in every way that there is.
func TestSuperviseLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		exit   int // -1: by the signal
	}{"Ctrl-C": {syscall.SIGINT, 0}, "SIGTERM": {syscall.SIGTERM, 0}, "kill -9": {syscall.SIGKILL, -1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSupervise(t, []map[string]any{
				{"Name": "web", "Command": "echo $$ >web; exec sleep 1000", "Restart": "always"},
				{"Name": "stubborn", "Command": stubborn},
				{"Name": "waits", "Command": []string{"sh", "-c", "echo $$ >waits; exit 1"}},
			})
			pids := []int{s.pid(t, "web"), s.pid(t, "stubborn"), s.pid(t, "child")}
			s.pid(t, "waits")
			pids = append(pids, family(t, s.cmd.Process.Pid)...)
			if len(pids) < 4 {
				t.Fatalf("only the processes %v were found, not the supervisor's", pids)
			}
			send(t, s.cmd.Process.Pid, c.signal)
			_ = s.cmd.Wait() // the status is looked at
			if got := s.cmd.ProcessState.ExitCode(); got != c.exit {
				t.Errorf("exit status %d, want %d\n%s", got, c.exit, s.stderr.String())
			}
			s.gone(t, pids)
		})
	}
}

// TestSuperviseRestarts: a process that is killed comes back, and what each one
// prints is behind its name.
func TestSuperviseRestarts(t *testing.T) {
	t.Parallel()
	s := startSupervise(t, []map[string]any{
		{"Name": "web", "Command": `echo "in $PWD"; echo $$ >web; exec sleep 1000`},
		{"Name": "once", "Command": []string{"printf", "%s\n", "a b"}, "Restart": "no"},
	})
	first := s.pid(t, "web")
	send(t, first, syscall.SIGKILL)
	await(t, "it runs again", func() bool { return s.pid(t, "web") != first })
	send(t, s.cmd.Process.Pid, syscall.SIGINT)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v, want 0", err)
	}
	if got := s.stdout.String(); strings.Count(got, "web  | in "+s.dir+"\n") != 2 || !strings.Contains(got, "once | a b\n") {
		t.Errorf("stdout:\n%s\nwant web's line twice and once's once", got)
	}
	if got := s.stderr.String(); !strings.Contains(got, "web  * ended by signal 9, starts again in 100ms\n") {
		t.Errorf("stderr:\n%s\nwant that web was killed", got)
	}
}
