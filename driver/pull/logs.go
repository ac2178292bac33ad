package pull

import (
	"context"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// maxLine is how long a line of a log may be in one piece.
const maxLine = 8 << 10

// Logs implements driver.Driver: the output that came with the end of the
// machine's last job, as lines of that moment. With Follow it waits for that
// end, and then for ctx or for the machine to be destroyed.
func (d *Driver) Logs(ctx context.Context, machine bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	var told *job // whose output was given, or is not wanted
	seen := false
	for first := true; ; first = false {
		d.mu.Lock()
		j, news := d.jobs[machine], d.news
		over := j != nil && j.phase == ended
		d.mu.Unlock()
		if over && j != told {
			told = j
			if !first {
				want.Tail = 0 // what is new is wanted, all of it
			}
			if err := tellOutput(j, want, line); err != nil {
				return err
			}
		}
		if !want.Follow || seen && j == nil { // destroyed
			return nil
		}
		seen = seen || j != nil
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellOutput gives the lines of an ended job, whose record changes no more.
func tellOutput(j *job, want driver.LogQuery, line func(driver.LogLine) error) error {
	if j.Exit.At.Before(want.Since) || want.Tail < 0 {
		return nil
	}
	lines := split(j, string(j.Output))
	if want.Tail > 0 && len(lines) > want.Tail {
		lines = lines[len(lines)-want.Tail:]
	}
	for _, l := range lines {
		if err := line(l); err != nil {
			return err
		}
	}
	return nil
}

func split(j *job, text string) []driver.LogLine {
	var out []driver.LogLine
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		for len(l) > maxLine {
			out = append(out, driver.LogLine{At: j.Exit.At, Stream: "stdout", Text: l[:maxLine], Partial: true})
			l = l[maxLine:]
		}
		out = append(out, driver.LogLine{At: j.Exit.At, Stream: "stdout", Text: l})
	}
	return out
}
