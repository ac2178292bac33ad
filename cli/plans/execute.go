package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Executor executes plans and shows their progress.
type Executor struct {
	Shell   *cli.Shell
	API     run.API
	Title   string      // describes the plan, for example "release v4 of shop"
	Options run.Options // Events and Abandon must be unset
	Resume  []string    // commands that continue or undo an interrupted plan
	Done    string      // describes the outcome; "" means a summary of the plan's changes
	// Signals delivers interrupts; nil means the signals of this process. At the first
	// interrupt, the caller must also cancel Execute's context. At the second interrupt,
	// Execute abandons the plan.
	Signals <-chan os.Signal
}

// Execute executes a plan. A returned error tells the user what to do next; after an
// interrupt, it is a [cli.Interrupted]. With --json, the last line of output is the result.
func (c *Executor) Execute(ctx context.Context, p *deploy.Plan) (run.Result, error) {
	cli.IgnoreSIGPIPE() // execute the whole plan even if nobody reads the progress
	show := Show(c.Shell, c.Title, p)
	over := make(chan struct{})
	o := c.Options
	o.Events, o.Abandon = show.Event, c.interrupts(ctx, show, over)
	result, err := run.Run(ctx, c.API, *p, o)
	close(over)
	show.End()
	p = &result.Plan
	left := VolumesLeft(p, &result)
	if c.Shell.JSON {
		_ = c.Shell.PrintLine(Line{Result: &result, VolumesLeft: left}) // standard output may be closed
	} else if err != nil && len(left) > 0 {
		c.Shell.Note(cli.Clean(LeftText(p.App, left)))
	}
	if err != nil {
		return result, c.explain(ctx, p, &result, err)
	}
	if c.Shell.JSON {
		return result, nil
	}
	for _, name := range result.Silent {
		c.Shell.Note("warning: proxy " + cli.Clean(name) + " has not received all changes yet")
	}
	_, err = fmt.Fprintf(c.Shell.Out, "%s  %s  %s in %s\n", cli.Clean(c.Title), string(cmp.Or(result.Status, release.Complete)), cmp.Or(c.Done, summary(p)), elapsed(result.Took))
	if err == nil && len(left) > 0 {
		_, err = fmt.Fprintln(c.Shell.Out, cli.Clean(LeftText(p.App, left)))
	}
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	return result, err
}

// VolumesLeft returns the volumes that remain after a run has destroyed their machines.
func VolumesLeft(p *deploy.Plan, r *run.Result) []bourse.VolumeID {
	return p.VolumesLeft(func(i int) bool { return i < len(r.Steps) && r.Steps[i].State == run.Done })
}

// LeftText describes in one line which volumes of an app remain, and how to destroy them.
func LeftText(app bourse.AppName, left []bourse.VolumeID) string {
	words := []string{"bourse", "volume", "destroy", "-a", string(app)}
	for _, id := range left {
		words = append(words, string(id))
	}
	command := strings.Join(words, " ")
	if len(left) == 1 {
		return "1 volume is left, with its data; to remove it: " + command
	}
	return fmt.Sprintf("%d volumes are left, with their data; to remove them: %s", len(left), command)
}

// interrupts watches for interrupts until over is closed. If ctx is canceled, it prints what
// happens next. It returns a channel that is closed at the second interrupt.
func (c *Executor) interrupts(ctx context.Context, show *Progress, over <-chan struct{}) <-chan struct{} {
	abandon := make(chan struct{})
	signals, stop := c.Signals, func() {}
	if signals == nil {
		own := make(chan os.Signal, 2) // room for the first and the second interrupt
		signal.Notify(own, os.Interrupt, syscall.SIGTERM)
		signals, stop = own, func() { signal.Stop(own) }
	}
	go func() {
		defer stop()
		ended := ctx.Done()
		var first time.Time
		for {
			select {
			case <-over:
				return
			case <-signals:
				if first.IsZero() {
					first = time.Now()
				} else if time.Since(first) > interruptGap {
					close(abandon)
					return
				}
			case <-ended:
				ended = nil
				show.Say(c.interruptedNote()...)
			}
		}
	}()
	return abandon
}

// interruptGap is the time within which two signals count as one interrupt. Programs such
// as timeout(1) send a signal to a process and then to its process group, so the process
// receives the signal twice.
const interruptGap = 300 * time.Millisecond

func (c *Executor) interruptedNote() []string {
	first := "interrupted: undoing the changes; press Ctrl-C again to stop and leave the rest as it is"
	if c.Options.KeepOnFailure {
		first = "interrupted: completed changes are kept; press Ctrl-C again to exit at once"
	}
	if len(c.Resume) == 0 {
		return []string{first}
	}
	return []string{first, "  afterwards: " + strings.Join(c.Resume, "  or  ")}
}

// explain turns a run's error into a message for the user, with hints.
func (c *Executor) explain(ctx context.Context, p *deploy.Plan, r *run.Result, err error) error {
	state, half := "everything is as it was before", r.Status == release.Interrupted
	over := errors.Is(err, run.ErrOvertaken)
	switch {
	case over:
		state = "it has stopped without undoing its changes"
	case len(r.Left) > 0:
		state = cli.Count(len(r.Left), "change") + " could not be undone"
	case half:
		state = "the app is neither in its former nor in its desired state"
	case !slices.ContainsFunc(r.Steps, func(o run.Outcome) bool { return o.State != "" }):
		state = "nothing was changed"
	}
	var left []string
	for i := range r.Left {
		left = append(left, r.Left[i].What)
	}
	if ctx.Err() != nil {
		for _, line := range left {
			c.Shell.Note("  " + cli.Clean(line))
		}
		if half && len(c.Resume) > 0 { // otherwise there is nothing to resume
			state += "; to continue: " + strings.Join(c.Resume, " or ")
		}
		return cli.Interrupted(c.Title + " was interrupted: " + state)
	}
	how := "failed"
	if half && !over {
		how = "is incomplete"
	}
	text := append([]string{c.Title + " " + how + ": " + bourse.MessageOf(err) + "; " + state}, left...)
	said := &bourse.Error{Code: bourse.CodeOf(err), Message: strings.Join(text, "\n")}
	if errors.Is(err, run.ErrLeased) {
		said.Err = run.ErrLeased
	}
	if over {
		said.Err = run.ErrOvertaken
		return cli.AfterResult(cli.Hint(said, "bourse status -a "+string(p.App)+", to see what the other client has done", "the same command again, if you still need it"))
	}
	return cli.AfterResult(cli.Hint(said, c.next(p, r, err)...))
}

// next returns hints about what to do after a failure.
func (c *Executor) next(p *deploy.Plan, r *run.Result, err error) []string {
	var out []string
	for i := range r.Left {
		if l := &r.Left[i]; l.Next != "" && !slices.Contains(out, l.Next) {
			out = append(out, l.Next)
		}
	}
	for i := range r.Failed {
		logs := "bourse machine logs -a " + string(p.App) + " " + string(r.Failed[i].Machine)
		if r.Failed[i].Machine != "" && !slices.Contains(out, logs) && stillExists(p, r, r.Failed[i].Machine) {
			out = append(out, logs)
		}
	}
	if r.Status == release.Interrupted {
		return append(out, c.Resume...)
	}
	if errors.Is(err, run.ErrLeased) {
		out = append(out, "bourse releases -a "+string(p.App)+", to see the other deploy", "the same command again, once it has ended")
	}
	if len(out) == 0 {
		out = append(out, "the same command again, once the cause is fixed")
	}
	return out
}

// stillExists reports whether a machine still exists after a plan was undone.
func stillExists(p *deploy.Plan, r *run.Result, id bourse.MachineID) bool {
	return slices.ContainsFunc(p.Steps, func(s deploy.Step) bool { return s.Machine == id }) || r.Status == release.Interrupted
}

// Owner describes this command to other clients that wait for its leases: where it runs,
// what it does, and when it began. The API adds the name of the token.
func Owner(s *cli.Shell, doing string) string {
	text := fmt.Sprintf("%s, since %s UTC", doing, s.Now().UTC().Format(time.TimeOnly))
	host, err := os.Hostname()
	switch user := s.Getenv("USER"); {
	case err != nil:
		return text
	case user != "":
		host = user + "@" + host
	}
	return host + ", " + text
}
