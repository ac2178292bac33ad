package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// Clean makes untrusted text safe for a terminal. It escapes control and formatting
// characters, which could move the cursor, change colors or reorder adjacent text.
func Clean(s string) string {
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

// Age formats the age of an event in its one or two largest units.
func Age(d time.Duration) string {
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

// At formats a time with its zone and milliseconds.
func At(t time.Time) string { return t.Local().Format("2006-01-02T15:04:05.000Z07:00") }

// Since formats a time with its zone, followed by its age.
func Since(t, now time.Time) string {
	return t.Local().Format(time.RFC3339) + " (" + Age(now.Sub(t)) + " ago)"
}

// Clock formats a time in the local zone. It includes the date unless the date is today's.
func Clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// Took formats a duration with about three significant digits.
func Took(d time.Duration) string {
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

// MiB formats a size in the largest binary unit that needs at most two decimals.
func MiB(n bourse.MiB) string {
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

// Amount formats an amount of a resource with its unit.
func Amount(r string, n int64) string {
	switch bourse.Resource(r) {
	case bourse.ResourceMemory, bourse.ResourceDisk:
		return MiB(bourse.MiB(n))
	case bourse.ResourceCPU:
		return Count(float64(n)/1000, "core")
	}
	return strconv.FormatInt(n, 10)
}

// Free formats the free and total amounts of a resource, for example "3.5/4" for CPUs.
func Free(a bourse.Account) string {
	switch a.Resource {
	case bourse.ResourceCPU:
		return fmt.Sprintf("%g/%g", float64(a.Free())/1000, float64(a.Total)/1000)
	case bourse.ResourceMemory, bourse.ResourceDisk:
		return MiB(bourse.MiB(a.Free())) + "/" + MiB(bourse.MiB(a.Total))
	}
	return fmt.Sprintf("%d/%d", a.Free(), a.Total)
}

// States formats the number of machines in each state, in the order in which a machine
// passes through them.
func States(counts map[bourse.State]int) string {
	var parts []string
	for _, state := range bourse.States() {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Count formats a number with its noun. The noun gets a plural "s" unless n is 1.
func Count[N int | int64 | float64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%v %ss", n, noun)
}

// Guest formats a machine's size, for example "2 cores, 512 MiB".
func Guest(g *bourse.Guest) string {
	if g == nil {
		return "-"
	}
	s := Count(g.CPUs, "shared cpu")
	if g.CPUKind == bourse.CPUPerformance {
		s = Count(g.CPUs, "core")
	}
	s += ", " + MiB(g.MemoryMB)
	if g.GPUs > 0 {
		s += fmt.Sprintf(", %d %s", g.GPUs, g.GPUKind)
	}
	return s
}

// Bytes formats a number of bytes in a unit that leaves at most four digits before the
// decimal point.
func Bytes(n int64) string {
	switch {
	case n < 0:
		return "-"
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
