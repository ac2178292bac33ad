package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KillSession kills the processes of a session in a cgroup until none is left,
// at most grace. A runtime makes the first process of an exec the leader of a
// session: that is how what it has started is found.
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
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
			}
		}
		if !found {
			return
		}
		time.Sleep(pause)
	}
}

// sessionOf returns the session of a process, 0 when it has ended; see
// proc_pid_stat(5).
func sessionOf(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// "pid (name) state ppid pgrp session …"; a name may have anything in it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	session, _ := strconv.Atoi(fields[3])
	return session
}
