package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Bounded returns the first of a list and, where there are others, how many: a line more.
func Bounded(list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// Wrap breaks a line between words so that it fits on so many columns; what follows the
// first is indented by so many blanks. A word that is too long is broken itself. Where
// there are no columns (0) nothing is broken.
func Wrap(line string, width, indent int) []string {
	var out []string
	width = max(width, 0)
	indent = min(indent, width/2)
	for width > 0 && len([]rune(line)) > width {
		runes := []rune(line)
		at := strings.LastIndexByte(string(runes[:width+1]), ' ')
		if at <= indent {
			at = len(string(runes[:width]))
		}
		out = append(out, strings.TrimRight(line[:at], " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}
