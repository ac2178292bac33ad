package process

import (
	"slices"
	"strconv"
	"strings"
)

// cgroupMount is a cgroup file system as mountinfo shows it.
type cgroupMount struct {
	point       string
	v2          bool
	controllers []string // of v1; named hierarchies have none that we use
}

// cgroupChoice is what a host's mounts offer.
type cgroupChoice struct {
	mode string            // "v1", "v2", "hybrid" or "none"
	v1   map[string]string // mount point by controller
	v2   string            // mount point, "" for none
}

// wantedControllers are the ones that limits need.
var wantedControllers = []string{"memory", "cpu", "pids"}

// parseMountinfo finds the cgroup mounts. Lines that are not understood are
// passed over. See proc_pid_mountinfo(5).
func parseMountinfo(text string) []cgroupMount {
	var out []cgroupMount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 3 {
			continue
		}
		switch rest[0] {
		case "cgroup2":
			out = append(out, cgroupMount{point: unescape(fields[4]), v2: true})
		case "cgroup":
			m := cgroupMount{point: unescape(fields[4])}
			for option := range strings.SplitSeq(rest[2], ",") {
				if slices.Contains(wantedControllers, option) {
					m.controllers = append(m.controllers, option)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// unescape undoes mountinfo's \040 and the like.
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

// chooseCgroups says what to use of the mounts: the first of each kind.
func chooseCgroups(mounts []cgroupMount) cgroupChoice {
	c := cgroupChoice{mode: "none", v1: map[string]string{}}
	anyV1 := false
	for _, m := range mounts {
		if m.v2 {
			if c.v2 == "" {
				c.v2 = m.point
			}
			continue
		}
		anyV1 = true
		for _, name := range m.controllers {
			if c.v1[name] == "" {
				c.v1[name] = m.point
			}
		}
	}
	switch {
	case anyV1 && c.v2 != "":
		c.mode = "hybrid"
	case anyV1:
		c.mode = "v1"
	case c.v2 != "":
		c.mode = "v2"
	}
	return c
}

// parseSelf reads /proc/self/cgroup: the path of this process's cgroup by
// controller, that of the unified hierarchy under "". See cgroups(7).
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

// counter reads one number of a file of "name number" lines, such as
// memory.events; 0 when it is not there.
func counter(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// limitLabels are the labels for what controllers can enforce.
func limitLabels(mode string, has func(controller string) bool) map[string]string {
	out := map[string]string{"cgroup": mode}
	for _, name := range wantedControllers {
		if has(name) {
			out["limit."+name] = "cgroup"
		}
	}
	return out
}
