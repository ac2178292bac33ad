package machine

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	maxLogs             = 100             // maximum number of machines whose output is shown at the same time
	maxLabel            = 24              // maximum length of the machine name printed before a line, in characters
	newMachinesInterval = 2 * time.Second // interval between checks for new machines
)

// source is one of several machines whose output is shown.
type source struct {
	machinesapi.Summary
	want machinesapi.LogQuery
	next chan machinesapi.LogLine // lines that already exist when the command starts
	err  error                    // error that ended the reading of lines; set before next is closed
}

// showAll shows the output of the named machines, or of all machines of the app if
// words is empty. It first prints the existing lines, merged by time. With -f, it then
// prints new lines as they arrive.
func (l *logs) showAll(ctx context.Context, words []string) error {
	list, err := l.named(ctx, words)
	if err != nil {
		return err
	}
	if len(list) == 0 && !l.follow {
		l.shell.Note("no machines in app " + l.app)
	}
	width := 0
	for _, x := range list {
		width = max(width, min(utf8.RuneCountInString(x.Name), maxLabel))
	}
	err = l.printExisting(ctx, list, width)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !l.follow {
		return err
	}
	return l.printNew(ctx, list, width, len(words) == 0)
}

// named returns the named machines, or all machines of the app if words is empty.
func (l *logs) named(ctx context.Context, words []string) ([]*source, error) {
	list, err := listMachines(ctx, l.shell, l.app)
	if err != nil {
		return nil, err
	}
	var ids []bourse.MachineID
	for _, word := range words {
		id, err := resolve(ctx, l.shell, l.app, word)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	var out []*source
	for i := range list {
		if len(words) == 0 || slices.Contains(ids, list[i].ID) {
			out = append(out, &source{Summary: list[i].Summary, want: l.want})
		}
	}
	if len(out) > maxLogs {
		err := bourse.Errorf(bourse.CodeInvalid, "app %s has %d machines, but logs can be shown for at most %d at the same time", l.app, len(out), maxLogs)
		return nil, cli.Hint(err, "bourse machine logs -a "+l.app+" MACHINE...")
	}
	return out, nil
}

// printExisting prints the existing lines of all machines, merged by time, and records the
// position of each machine's last line.
func (l *logs) printExisting(ctx context.Context, list []*source, width int) error {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	heads := make([]*machinesapi.LogLine, len(list))
	for i, x := range list {
		x.next = make(chan machinesapi.LogLine)
		reading.Go(func() { l.read(ctx, x) })
		heads[i] = x.head()
	}
	var last []logLine // with --tail, the last lines of all machines together
	for {
		first := -1
		for i, h := range heads {
			if h != nil && (first < 0 || h.At.Before(heads[first].At)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		x := list[first]
		line := x.line(*heads[first], width)
		x.want.After = line.Position
		heads[first] = x.head()
		if l.want.Tail > 0 {
			last = append(last, line)
			last = last[max(0, len(last)-l.want.Tail):]
		} else if err := l.print(line); err != nil {
			return err
		}
	}
	for _, line := range last {
		if err := l.print(line); err != nil {
			return err
		}
	}
	var failed []error
	for _, x := range list {
		if x.err != nil {
			failed = append(failed, withMachine(x.ID, x.err))
		}
	}
	return errors.Join(failed...)
}

// read sends x's existing lines to x.next, and then closes it. If reading the lines fails,
// it stores the error in x.err.
func (l *logs) read(ctx context.Context, x *source) {
	defer close(x.next)
	x.err = l.shell.Client().Logs(ctx, bourse.AppName(l.app), x.ID, x.want, func(line machinesapi.LogLine) error {
		select {
		case x.next <- line:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

func (x *source) head() *machinesapi.LogLine {
	line, ok := <-x.next
	if !ok {
		return nil
	}
	return &line
}

func (x *source) line(l machinesapi.LogLine, width int) logLine {
	name := cli.Cut(cli.Clean(x.Name), maxLabel)
	return logLine{Machine: x.ID, Name: x.Name, LogLine: l, label: cli.Pad(name, width, false) + cli.ColumnGap, color: colorOf(x.ID)}
}

// labelColors are the terminal colors of machine names. Red is reserved for failures.
var labelColors = []int{32, 33, 34, 35, 36, 92, 93, 94, 95, 96}

// colorOf derives a machine's color from its id, so that the color is the same each time.
func colorOf(id bourse.MachineID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // Write never fails
	return labelColors[h.Sum32()%uint32(len(labelColors))]
}

// printNew prints new lines as they arrive, until ctx is done or all machines are
// destroyed. If more is set, it includes machines that are created later.
func (l *logs) printNew(ctx context.Context, list []*source, width int, more bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	known := map[bourse.MachineID]bool{}
	follow := func(x *source) {
		known[x.ID] = true
		x.want.Tail = 0 // all existing lines were already printed
		following.Go(func() {
			err := l.followOne(ctx, x.ID, x.want, func(line machinesapi.LogLine) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.print(x.line(line, width))
			})
			if err != nil {
				cancel(withMachine(x.ID, err))
			}
		})
	}
	for _, x := range list {
		follow(x)
	}
	if more {
		l.pollMachines(ctx, func(m machinesapi.Summary) {
			if !known[m.ID] && len(known) < maxLogs {
				follow(&source{Summary: m})
			}
		})
	}
	following.Wait()
	defer cancel(nil)
	return context.Cause(ctx)
}

// pollMachines lists the app's machines at regular intervals and passes each of them to
// see, until ctx is done.
func (l *logs) pollMachines(ctx context.Context, see func(machinesapi.Summary)) {
	tick := time.NewTicker(newMachinesInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		list, _, err := l.shell.Client().Machines(ctx, bourse.AppName(l.app), machinesapi.ListMachines{Summary: true})
		for i := 0; err == nil && i < len(list); i++ {
			see(list[i].Summary)
		}
	}
}
