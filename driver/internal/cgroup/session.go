package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KillSession kills those processes in a cgroup that belong to one session, until none remains or
// grace has passed. leader is the process id of the session's leader, which may have exited. A
// container runtime makes the first process of an exec a session leader, so the session normally
// contains all processes that the exec has started.
func (g *Tree) KillSession(path string, leader int, grace time.Duration) {
	if leader <= 1 {
		return
	}
	deadline := time.Now().Add(grace)
	for pause := 100 * time.Microsecond; time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		found := false
		for _, pid := range g.Members(path) {
			if sessionOf(pid) == leader {
				found = true
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
			}
		}
		if !found {
			return
		}
		time.Sleep(pause)
	}
}

// sessionOf returns the session id of a process, or 0 if the process has ended. See
// proc_pid_stat(5).
func sessionOf(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The file has the form "pid (name) state ppid pgrp session …"; the name may contain any
	// character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	session, _ := strconv.Atoi(fields[3])
	return session
}
