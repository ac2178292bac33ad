package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// clean makes a text that others wrote safe for a terminal: control and
// formatting characters are shown as escapes, so that none can move the
// cursor, recolour the screen or reorder what stands beside it.
func clean(s string) string {
	unsafe := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError }
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafe(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// age shows how long ago something was, in its one or two largest units.
func age(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// took shows how long something took, in three digits.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// mib shows a size in the largest binary unit that needs no more than two
// decimals.
func mib(n bourse.MiB) string {
	for _, u := range []struct {
		size bourse.MiB
		name string
	}{{1 << 20, "TiB"}, {1 << 10, "GiB"}} {
		if n < u.size {
			continue
		}
		if hundredths := float64(n) / float64(u.size) * 100; hundredths == math.Trunc(hundredths) {
			return fmt.Sprintf("%g %s", hundredths/100, u.name)
		}
	}
	return fmt.Sprintf("%d MiB", n)
}

// amount shows so much of a resource with its unit.
func amount(r string, n int64) string {
	switch bourse.Resource(r) {
	case bourse.ResourceMemory, bourse.ResourceDisk:
		return mib(bourse.MiB(n))
	case bourse.ResourceCPU:
		return count(float64(n)/1000, "cpu")
	}
	return strconv.FormatInt(n, 10)
}

// count shows a number with its noun, in the plural where it takes one.
func count[N int | int64 | float64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%v %ss", n, noun)
}

// guest shows the size of a machine in a few characters: "2 cpus, 512 MiB".
func guest(g *bourse.Guest) string {
	if g == nil {
		return "-"
	}
	s := count(g.CPUs, "cpu")
	if g.CPUKind == bourse.CPUPerformance {
		s = count(g.CPUs, "own cpu")
	}
	s += ", " + mib(g.MemoryMB)
	if g.GPUs > 0 {
		s += fmt.Sprintf(", %d %s", g.GPUs, g.GPUKind)
	}
	return s
}

// dash stands for an empty cell.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func upper(s string) string { return strings.ToUpper(s) }
