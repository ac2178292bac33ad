package machine

import (
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse/cli"
)

// screenText makes a line of a program's output safe for a terminal. It keeps colors and
// tabs, and escapes everything else as [cli.Clean] does. If the line sets a color,
// screenText resets it at the end.
func screenText(s string) string {
	if cleaned := cli.Clean(s); cleaned == s {
		return s
	}
	var b strings.Builder
	colored := false
	for s != "" {
		if n := color(s); n > 0 {
			b.WriteString(s[:n])
			s, colored = s[n:], true
			continue
		}
		_, n := utf8.DecodeRuneInString(s)
		if s[0] == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteString(cli.Clean(s[:n]))
		}
		s = s[n:]
	}
	if colored {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// color returns the length of the color sequence at the beginning of s (ESC [, digits
// and semicolons, m), or 0 if there is none.
func color(s string) int {
	const longest = 64
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < min(len(s), longest); i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}
