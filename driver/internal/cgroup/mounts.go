package cgroup

import (
	"slices"
	"strconv"
	"strings"
)

// Mount describes a cgroup file system listed in mountinfo.
type Mount struct {
	Point       string
	V2          bool
	Controllers []string // v1 only; empty for named hierarchies, which have no controllers
}

// Choice contains the host's cgroup mounts that this package uses.
type Choice struct {
	Mode string            // "v1", "v2", "hybrid" or "none"
	V1   map[string]string // mount point of each controller
	V2   string            // mount point, or "" if there is none
}

// limiting lists the controllers that enforce limits.
var limiting = []string{"memory", "cpu", "pids"}

// used lists the controllers that Choice may contain: the controllers in limiting, and others
// for measuring usage and freezing.
var used = []string{"memory", "cpu", "pids", "cpuacct", "blkio", "freezer"}

// ParseMountinfo returns the cgroup mounts listed in text, the contents of a mountinfo file. It
// ignores invalid lines. See proc_pid_mountinfo(5).
func ParseMountinfo(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 3 {
			continue
		}
		switch rest[0] {
		case "cgroup2":
			out = append(out, Mount{Point: unescape(fields[4]), V2: true})
		case "cgroup":
			m := Mount{Point: unescape(fields[4])}
			for option := range strings.SplitSeq(rest[2], ",") {
				if slices.Contains(used, option) {
					m.Controllers = append(m.Controllers, option)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// unescape decodes the octal escapes of mountinfo, such as \040.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Choose selects the first mount of the unified hierarchy and of each v1 controller.
func Choose(mounts []Mount) Choice {
	c := Choice{Mode: "none", V1: map[string]string{}}
	anyV1 := false
	for _, m := range mounts {
		if m.V2 {
			if c.V2 == "" {
				c.V2 = m.Point
			}
			continue
		}
		anyV1 = true
		for _, name := range m.Controllers {
			if c.V1[name] == "" {
				c.V1[name] = m.Point
			}
		}
	}
	switch {
	case anyV1 && c.V2 != "":
		c.Mode = "hybrid"
	case anyV1:
		c.Mode = "v1"
	case c.V2 != "":
		c.Mode = "v2"
	}
	return c
}

// parseSelf parses /proc/self/cgroup. It returns the path of this process's cgroup for each
// controller; the key "" stands for the unified hierarchy. See cgroups(7).
func parseSelf(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, path, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(path, "/") {
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			out[name] = path
		}
	}
	return out
}

// counter returns the number after name in text, which consists of lines of the form "name number",
// such as the contents of memory.events. It returns 0 if name is missing.
func counter(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// labels returns the driver labels for a host's cgroups: the label "cgroup" with the value mode
// (see Choice.Mode), and a limit label for each available controller in limiting.
func labels(mode string, available func(controller string) bool) map[string]string {
	out := map[string]string{"cgroup": mode}
	for _, name := range limiting {
		if available(name) {
			out["limit."+name] = "cgroup"
		}
	}
	return out
}
