package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// tick is the unit of CPU times in /proc. USER_HZ, the number of ticks per second, is 100 on all systems that Go
// supports.
const tick = 10 * time.Millisecond

// account returns the total resource usage of some processes, as reported in /proc.
func account(pids []int) driver.Usage {
	u := driver.Usage{}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		ps, ok := parseStat(stat)
		if !ok {
			continue
		}
		u.PIDs++
		u.CPU += ps.cpu
		if statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
			u.Memory += private(string(statm)) * int64(os.Getpagesize())
		}
	}
	return u
}

// procStat contains some fields of /proc/<pid>/stat.
type procStat struct {
	session int
	cpu     time.Duration // includes children for which the process has waited
}

// parseStat parses /proc/<pid>/stat; see proc_pid_stat(5). The program's name, in parentheses, may contain any bytes.
func parseStat(b []byte) (procStat, bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, false
	}
	f := strings.Fields(string(b[i+1:])) // f starts with the file's third field
	if len(f) < 15 {
		return procStat{}, false
	}
	session, err := strconv.Atoi(f[3])
	if err != nil {
		return procStat{}, false
	}
	var ticks int64
	for _, field := range f[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 || n > 1<<40 {
			return procStat{}, false
		}
		ticks += n
	}
	return procStat{session: session, cpu: time.Duration(ticks) * tick}, true
}

// private returns the number of a process's resident pages that are not shared. statm is the contents of
// /proc/<pid>/statm.
func private(statm string) int64 {
	f := strings.Fields(statm)
	if len(f) < 3 {
		return 0
	}
	resident, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	shared, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return 0
	}
	return max(0, resident-shared)
}

// processTree returns the process ids of a process and all its descendants.
func processTree(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(strconv.Itoa(all[i]))...)
	}
	return all
}

// killSession kills the remaining processes of a session, including those in other process groups,
// such as a shell's jobs.
func killSession(sid int) {
	for _, pid := range numbers("/proc") {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if ps, ok := parseStat(stat); ok && ps.session == sid {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}
	}
}
