package machines

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Limits for reading /proc.
const (
	maxProcesses = 1000 // processes of a machine
	maxFiles     = 4096 // open files per process
	maxCommand   = 4096 // maximum length of a command line, in bytes
	maxSockets   = 64   // sockets per process
)

// tick is the duration of a clock tick in /proc, in milliseconds.
const tick = 10

// Table reads a host's process table from /proc.
type Table struct {
	Root string // mount point, usually /proc
}

// process contains values from a process's stat file.
type process struct {
	parent              int
	user, system, began int64 // all in ticks
	pages               int64
}

// Of returns a machine's processes: the main process first, and then the others, sorted by id. Errors:
// failed_precondition if the host has no /proc, not_found if the main process has exited.
func (t Table) Of(main int) ([]bourse.Process, error) {
	entries, err := os.ReadDir(t.Root)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "the machine's host has no %s", t.Root)
	}
	all := map[int]process{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := t.stat(pid); ok {
				all[pid] = p
			}
		}
	}
	if _, ok := all[main]; !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "the machine's program has ended")
	}
	uptime := t.uptime()
	listening := t.listening(main)
	out := []bourse.Process{}
	for _, pid := range t.members(all, main) {
		p := all[pid]
		out = append(out, bourse.Process{
			PID: t.inner(pid), STime: p.system * tick, CPU: (p.user + p.system) * tick, RTime: max(0, uptime-p.began) * tick,
			RSS: p.pages * int64(os.Getpagesize()), Command: t.command(pid), Directory: t.directory(pid), Listens: t.sockets(pid, listening),
		})
	}
	return out, nil
}

// members returns the ids of a machine's processes, starting with the main process.
func (t Table) members(all map[int]process, main int) []int {
	group := t.group(main)
	own := group != "" && group != t.group(all[main].parent)
	member := map[int]bool{main: true}
	out := []int{main}
	for _, pid := range sorted(all) {
		var line []int // pid and its ancestors, excluding the first ancestor that is already a member
		at := pid
		for p, ok := all[at]; ok && !member[at] && len(line) < maxProcesses; p, ok = all[at] {
			line = append(line, at)
			at = p.parent
		}
		if !member[at] && (!own || t.group(pid) != group) {
			continue
		}
		if !member[at] {
			line = line[:1]
		}
		for _, pid := range line {
			member[pid] = true
			out = append(out, pid)
		}
	}
	slices.Sort(out[1:])
	return out[:min(len(out), maxProcesses)]
}

func sorted(all map[int]process) []int {
	out := make([]int, 0, len(all))
	for pid := range all {
		out = append(out, pid)
	}
	slices.Sort(out)
	return out
}

func (t Table) file(pid int, name string) string {
	return filepath.Join(t.Root, strconv.Itoa(pid), name)
}

// stat reads a process's stat file. The process's name is in parentheses and may itself contain parentheses, so stat
// looks for the last closing parenthesis.
func (t Table) stat(pid int) (p process, ok bool) {
	text, err := os.ReadFile(t.file(pid, "stat"))
	if err != nil {
		return p, false
	}
	return parseStat(text)
}

func parseStat(text []byte) (p process, ok bool) {
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return p, false
	}
	const parent, user, system, began, pages = 1, 11, 12, 19, 21 // indexes of the fields after the name; see proc(5)
	fields := strings.Fields(string(text[i+1:]))
	if len(fields) <= pages {
		return p, false
	}
	n := func(i int) int64 {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		ok = ok && err == nil && v >= 0 && v < 1<<50
		return v
	}
	ok = true
	p = process{int(n(parent)), n(user), n(system), n(began), n(pages)}
	return p, ok
}

// group returns the contents of a process's cgroup file, which names the process's cgroups.
func (t Table) group(pid int) string {
	text, err := os.ReadFile(t.file(pid, "cgroup"))
	if err != nil {
		return ""
	}
	return string(text)
}

// inner returns a process's id in its innermost PID namespace.
func (t Table) inner(pid int) int64 {
	text, err := os.ReadFile(t.file(pid, "status"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				list := strings.Fields(ids)
				if n, err := strconv.ParseInt(list[max(0, len(list)-1)], 10, 64); err == nil {
					return n
				}
			}
		}
	}
	return int64(pid)
}

// command returns a process's command line, with spaces between the arguments. If the
// command line is empty, it returns the process's name in square brackets.
func (t Table) command(pid int) string {
	text, err := os.ReadFile(t.file(pid, "cmdline"))
	text = bytes.TrimRight(text[:min(len(text), maxCommand)], "\x00")
	if err != nil || len(text) == 0 {
		name, _ := os.ReadFile(t.file(pid, "comm"))
		text = slices.Concat([]byte("["), bytes.TrimSpace(name), []byte("]"))
	}
	return strings.ToValidUTF8(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})), "?")
}

func (t Table) directory(pid int) string {
	dir, _ := os.Readlink(t.file(pid, "cwd"))
	return strings.ToValidUTF8(dir[:min(len(dir), maxCommand)], "?")
}

// uptime returns the host's uptime in ticks.
func (t Table) uptime() int64 {
	text, _ := os.ReadFile(filepath.Join(t.Root, "uptime"))
	first, _, _ := strings.Cut(string(text), " ")
	seconds, _ := strconv.ParseFloat(first, 64)
	return int64(seconds * 1000 / tick)
}

// sockets returns the listening sockets that a process has open. listening contains all listening sockets in the
// process's network namespace, keyed by link target.
func (t Table) sockets(pid int, listening map[string]bourse.ListenSocket) []bourse.ListenSocket {
	out := []bourse.ListenSocket{}
	dir, err := os.Open(t.file(pid, "fd"))
	if err != nil || len(listening) == 0 {
		return out
	}
	defer func() { _ = dir.Close() }()     // the directory was only read
	names, _ := dir.Readdirnames(maxFiles) // the names that were read before an error are still useful
	for _, name := range names {
		link, _ := os.Readlink(filepath.Join(dir.Name(), name))
		if s, ok := listening[link]; ok && len(out) < maxSockets && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b bourse.ListenSocket) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Address, b.Address))
	})
	return out
}

// maxTable is the maximum number of bytes to read from a socket table.
const maxTable = 4 << 20

// The states of listening TCP sockets, and of bound but unconnected UDP sockets, in the tables under /proc/net.
const (
	stateListen = "0A"
	stateBound  = "07"
)

// listening returns the listening sockets in a process's network namespace. The keys
// are link targets as they appear in the process's fd directory.
func (t Table) listening(pid int) map[string]bourse.ListenSocket {
	out := map[string]bourse.ListenSocket{}
	for _, of := range []struct{ file, proto, state string }{
		{"net/tcp", "tcp", stateListen}, {"net/tcp6", "tcp", stateListen}, {"net/udp", "udp", stateBound}, {"net/udp6", "udp", stateBound},
	} {
		f, err := os.Open(t.file(pid, of.file))
		if err != nil {
			continue
		}
		text := make([]byte, 0, 64<<10)
		for len(text) < maxTable {
			text = slices.Grow(text, 64<<10)
			n, err := f.Read(text[len(text):cap(text)])
			text = text[:len(text)+n]
			if err != nil {
				break
			}
		}
		_ = f.Close() // the file was only read
		parseSockets(string(text), of.proto, of.state, out)
	}
	return out
}

// parseSockets parses a socket table and adds its sockets to out. See /proc/net/tcp in
// proc(5).
func parseSockets(text, proto, state string, out map[string]bourse.ListenSocket) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		if at, ok := parseAddress(fields[1]); ok {
			out["socket:["+fields[9]+"]"] = bourse.ListenSocket{Proto: proto, Address: at.String()}
		}
	}
}

// parseAddress parses an address and a port in hexadecimal form. The address consists
// of four-byte words in the processor's byte order, which is little-endian on all
// supported platforms.
func parseAddress(text string) (netip.AddrPort, bool) {
	ip, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(ip)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(n)), ok
}
