package pull

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// maxLine is the maximum length in bytes of a line that is not split.
const maxLine = 8 << 10

// Logs implements driver.Driver. It returns the output that was reported when the machine's latest
// job ended. The time of each line is the time at which the job ended. If want.Follow is set, Logs
// waits for the job to end, and then for later jobs, until ctx is done or the machine is destroyed.
func (d *Driver) Logs(ctx context.Context, machine bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	var reported *job // the latest job whose output was passed to writeOutput
	seen := false
	for first := true; ; first = false {
		d.mu.Lock()
		j, news := d.jobs[machine], d.changed
		over := j != nil && j.phase == ended
		d.mu.Unlock()
		if over && j != reported {
			reported = j
			if !first {
				want.Tail, want.After = 0, "" // return all lines of a later job
			}
			if err := writeOutput(j, want, line); err != nil {
				return err
			}
		}
		if !want.Follow || seen && j == nil { // the machine was destroyed
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

// writeOutput calls line with each line of an ended job's output that want selects. mu need not be
// held, because the record of an ended job does not change.
func writeOutput(j *job, want driver.LogQuery, line func(driver.LogLine) error) error {
	if want.After == "" && (j.Exit.At.Before(want.Since) || want.Tail < 0) {
		return nil
	}
	lines := split(j, string(j.Output))
	if want.After != "" {
		n, err := linesUntil(j, want.After)
		if err != nil {
			return err
		}
		lines = lines[min(n, len(lines)):]
	}
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

// linesUntil returns the number of lines up to and including the line at a position. It returns 0
// if the position belongs to another job.
func linesUntil(j *job, after string) (int, error) {
	job, line, ok := strings.Cut(after, ".")
	at, err1 := strconv.ParseInt(job, 10, 64)
	n, err2 := strconv.ParseUint(line, 10, 31)
	switch {
	case !ok || err1 != nil || err2 != nil:
		return 0, driver.ErrPosition(after)
	case at != j.Exit.At.UnixNano():
		return 0, nil
	}
	return int(n), nil
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
	for i := range out {
		out[i].Position = fmt.Sprintf("%d.%d", j.Exit.At.UnixNano(), i+1)
	}
	return out
}
