package tuning

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// hostMemory returns the host's memory in bytes, or 0 if it is unknown.
func hostMemory() uint64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // other widths on other architectures
}

// cgroupMemory returns the lowest memory limit of the process's cgroup and its ancestors, or 0 if there is no limit. It
// supports both cgroup versions. membership is the path of the file that lists the process's cgroups, and root is the
// directory in which cgroup file systems are mounted.
func cgroupMemory(membership, root string) uint64 {
	file, err := os.Open(membership)
	if err != nil {
		return 0
	}
	defer file.Close()
	var limit uint64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		dir, name := root, "memory.max"
		switch {
		case controllers == "": // a line for version 2
		case strings.Contains(","+controllers+",", ",memory,"):
			dir, name = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			if n := limitIn(filepath.Join(dir, path, name)); n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if path == "/" {
				break
			}
		}
	}
	return limit
}

// limitIn reads a limit in bytes from a file. It returns 0 if there is no limit.
func limitIn(file string) uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // the file contains "max"
		return 0
	}
	return n
}
