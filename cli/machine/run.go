package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

type runFlags struct {
	place.Flags
	order   string
	detach  bool
	attach  bool
	timeout time.Duration
}

func newRun(s *cli.Shell) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] IMAGE [COMMAND...]",
		Short: "Place an order for a machine",
		Long: `Place an order for a machine. The workers of the region answer with quotes, the
best one is claimed, and the machine has started when this returns; or you are
told who said no and why.

An image is a name such as nginx or registry.example.com/app:v2; workers that
have it already are preferred. Image "host" runs a command of the worker's own
host: a program named relative to here, such as ./server, is looked up here.

Flags go before the image or right behind it. From the first word of the command
on everything is the command's; so is everything behind --.

With --attach it is as if the program ran here: what it writes is shown until it
has ended, its exit status is ours, and without --restart it is run once. Ctrl-C
leaves the machine as it is, and with --rm destroys it.`,
		Example: `  bourse machine run nginx --region gru --port 80
  bourse machine run host --region gru -- ./server
  bourse machine run host -r gru,eu --vm-memory 1GiB -e MODE=fast -- sleep 600
  bourse machine run host --rm --require slots=2 --require zone=b -- ./job`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: cli.Complete(s.Images),
		RunE: func(c *cobra.Command, args []string) error {
			f.SkipLaunch = f.SkipLaunch || len(f.Standbys) > 0
			if !c.Flags().Changed("attach") {
				f.attach = f.Remove() && s.Out.TTY && !s.JSON && !f.detach && !f.SkipLaunch
			}
			if f.attach && (s.JSON || f.detach || f.SkipLaunch) {
				return bourse.Errorf(bourse.CodeInvalid, "--attach excludes --detach, --skip-launch and --json")
			}
			return runMachine(c.Context(), s, &f, args)
		},
	}
	f.Bind(s, c)
	s.CommandLast(c)
	flags := c.Flags()
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID: a repetition with the same id finds the first one's machine")
	flags.BoolVar(&f.attach, "attach", false, "show what the program writes until it has ended, and end with its exit status; so does --rm on a terminal")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait for the machine to be started")
	flags.DurationVar(&f.timeout, "wait-timeout", 5*time.Minute, "wait so `long` for the machine to be started")
	return c
}

func runMachine(ctx context.Context, s *cli.Shell, f *runFlags, args []string) error {
	for i, word := range f.Standbys {
		id, err := resolve(ctx, s, f.App, word)
		if err != nil {
			return cli.FlagError("--standby-for", err)
		}
		f.Standbys[i] = string(id)
	}
	req, err := f.Request(args)
	if err != nil {
		return err
	}
	if err := mountVolume(ctx, s, f, &req); err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order == "" {
		order, req.FirstTry = bourse.NewOrderID(), true // ours, so that a lost answer can be asked for again
	} else if err := order.Validate(); err != nil {
		return cli.FlagError("--order-id", err)
	}
	if f.attach {
		req.Config.AutoDestroy = false // attached does it
		if req.Config.Restart == nil {
			req.Config.Restart = &bourse.Restart{Policy: bourse.RestartNo} // its end is ours
		}
	}
	m, err := create(ctx, s, f.App, req, order)
	if err != nil {
		return place.Explain(s, err, f.App, order)
	}
	warn(s, &m)
	if f.attach {
		return attached(ctx, s, string(m.App), m.ID, f.Remove())
	}
	if !f.SkipLaunch && !f.detach && !m.State.Settled() {
		reply, err := wait(ctx, s, f.App, m.ID, []string{machinesapi.StateSettled}, f.timeout)
		if err != nil && ctx.Err() != nil {
			return cli.Interrupted("interrupted; the machine stays: bourse machine status" + appFlag(m.App) + " " + string(m.ID))
		}
		if err != nil {
			return err
		}
		m.State = reply.State
	}
	if text := served(&m.Machine); text != "" {
		defer s.Note(text)
	}
	if s.JSON {
		return s.PrintJSON(m.Machine)
	}
	return printCreated(s, &m)
}

// warn says what of the order is not acted on; of services served says more.
func warn(s *cli.Shell, m *machinesapi.Created) {
	said := served(&m.Machine) != ""
	place.Warn(s, slices.DeleteFunc(slices.Clone(m.Warnings), func(w bourse.Warning) bool { return said && w.Field == "config.services" }))
}

// create places the order. The app "default" needs no making: brokers know it.
func create(ctx context.Context, s *cli.Shell, app string, req machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Created, error) {
	end := followPull(ctx, s, bourse.AppName(app), req.Config.Image, order)
	m, err := s.Client().Create(ctx, bourse.AppName(app), req, order)
	end(err == nil)
	return m, err
}

func printCreated(s *cli.Shell, m *machinesapi.Created) error {
	var f cli.Facts
	f.Add("machine", string(m.ID)+"  "+m.Name)
	where := fmt.Sprintf("%s in region %s", m.State, m.Region)
	if m.Worker != "" {
		where += fmt.Sprintf(" on worker %s", m.Worker)
	}
	f.Add("state", where)
	if m.Port > 0 {
		f.Add("port", fmt.Sprint(m.Port))
	}
	f.Add("order", string(m.OrderID))
	f.Add("took", timing(m.Timing))
	if err := f.Write(s.Out); err != nil {
		return err
	}
	if s.Out.TTY {
		s.Note("\nits output: bourse machine logs" + appFlag(m.App) + " " + string(m.ID) + "\nwhy there:  bourse order show " + string(m.OrderID))
	}
	return nil
}

// timing shows the server's own account of the request.
func timing(t machinesapi.Timing) string {
	var total time.Duration
	var parts []string
	for _, name := range []string{"quote", "rank", "claim", "start"} {
		if d, ok := t[name]; ok {
			total += d
			parts = append(parts, name+" "+cli.Took(d))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if d, ok := t["total"]; ok {
		total = d
	}
	return cli.Took(total) + " (" + strings.Join(parts, ", ") + ")"
}

// appFlag returns the flag that a hint must carry, none for the default app.
func appFlag(app bourse.AppName) string {
	if app == "" || app == cli.DefaultApp {
		return ""
	}
	return " -a " + string(app)
}
