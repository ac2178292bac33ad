package volume

import (
	"os"
	"path/filepath"
	"strings"
)

// mountsBelow returns the mount points below a directory, the latest first, so
// that those on top of others come before them.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for _, p := range mountPoints(string(b)) {
		if strings.HasPrefix(p, dir+string(filepath.Separator)) {
			below = append([]string{p}, below...)
		}
	}
	return below, nil
}

// mountPoints reads the mount points of /proc/self/mountinfo, see proc(5):
// blanks and backslashes in them are three octal digits.
func mountPoints(info string) []string {
	var points []string
	for line := range strings.Lines(info) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte(s[i+1]<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
