package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

// alive reports whether there is such a process. One that has ended and is not
// yet collected by its parent counts as gone.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, _ := readStat(pid)
	return state != "Z"
}

// descendants returns the processes that one has started, and what those have.
// Where there is no /proc it gives none.
func descendants(of int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			_, parent := readStat(pid)
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for next := children[of]; len(next) > 0; next = next[1:] {
		out = append(out, next[0])
		next = append(next, children[next[0]]...)
	}
	return out
}

// readStat reads a process's state and parent from /proc/PID/stat, where they
// follow the program's name in parentheses.
func readStat(pid int) (state string, parent int) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(string(fields[1])) // 0 for what is no number
	return string(fields[0]), parent
}
