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
	tmp, dir string // tmp is the parent of the command's temporary directory, dir its working directory
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
		_ = s.cmd.Process.Kill() // it may have exited already
		_ = s.cmd.Wait()         // the test may have waited for it already
	})
	return s
}

// pid waits until a task has written its process id to a file.
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

// gone waits until the processes have exited and the temporary directory is removed.
func (s *supervised) gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, "process "+describe(pid)+" is gone", func() bool { return !alive(pid) })
	}
	await(t, "no files remain in "+s.tmp, func() bool {
		left, err := os.ReadDir(s.tmp)
		return err == nil && len(left) == 0
	})
}

// stubborn is the command of a task that ignores signals, and whose child process
// ignores them, too.
const stubborn = "trap '' TERM INT; (trap '' TERM INT; exec sleep 1000) & echo $! >child; echo $$ >stubborn; while :; do sleep 1000; done"

// TestSuperviseCleansUp stops the command in various ways, and checks that no process
// or file is left each time.
func TestSuperviseCleansUp(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		exit   int // exit status; -1 if the signal ended the process
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
				t.Fatalf("found only the processes %v, not the supervisor's", pids)
			}
			send(t, s.cmd.Process.Pid, c.signal)
			_ = s.cmd.Wait() // the exit status is checked below
			if got := s.cmd.ProcessState.ExitCode(); got != c.exit {
				t.Errorf("exit status %d, want %d\n%s", got, c.exit, s.stderr.String())
			}
			s.gone(t, pids)
		})
	}
}

// TestSuperviseRestarts checks that a killed process is restarted, and that output is
// printed after the task's name.
func TestSuperviseRestarts(t *testing.T) {
	t.Parallel()
	s := startSupervise(t, []map[string]any{
		{"Name": "web", "Command": `echo "in $PWD"; echo $$ >web; exec sleep 1000`},
		{"Name": "once", "Command": []string{"printf", "%s\n", "a b"}, "Restart": "no"},
	})
	first := s.pid(t, "web")
	send(t, first, syscall.SIGKILL)
	await(t, "it was restarted", func() bool { return s.pid(t, "web") != first })
	send(t, s.cmd.Process.Pid, syscall.SIGINT)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("exited with %v, want 0", err)
	}
	if got := s.stdout.String(); strings.Count(got, "web  | in "+s.dir+"\n") != 2 || !strings.Contains(got, "once | a b\n") {
		t.Errorf("stdout:\n%s\nwant the line of web twice and the line of once one time", got)
	}
	if got := s.stderr.String(); !strings.Contains(got, "web  * ended by signal 9; restarting in 100ms\n") {
		t.Errorf("stderr:\n%s\nwant a line that reports that web was killed", got)
	}
}
