package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newRotate(s *cli.Shell) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "rotate gossip|secrets",
		Short: "Replace a key that servers share, on all servers that have it",
		Long: `Replace the key that encrypts the membership (gossip.key, on all servers) or the
secrets of apps (secrets.key, on all brokers), while the servers run. First every server
receives the new key, then every server encrypts with it, then every server forgets the
old key. Each step begins when all servers have done the one before, so no request
fails.

If a server does not answer, the command waits for it. If it gives up or is
interrupted, repeat it: it continues the rotation that has begun. If a worker will not
come back, remove it first (bourse member remove). Brokers and proxies have to run,
because those that are down are not known: they would be left with the old key.

The old key of secrets stays in use until every secret was set again. After a theft,
set new values, since whoever has the key can have read the old ones. Repeat the command
afterwards to remove the old key.`,
		Example: `  bourse credentials rotate gossip
  bourse credentials rotate gossip --wait 10m   # while a host reboots
  bourse credentials rotate secrets`,
		Args:      cli.Exactly(1),
		ValidArgs: []cobra.Completion{string(machinesapi.KeyGossip), string(machinesapi.KeySecrets)},
		RunE: func(c *cobra.Command, args []string) error {
			r := rotation{shell: s, key: machinesapi.SharedKey(args[0]), end: s.Now().Add(wait)}
			return r.run(c)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 30*time.Second, "`time` to wait for servers that do not answer")
	return c
}

// rotation is a rotation in progress.
type rotation struct {
	shell *cli.Shell
	key   machinesapi.SharedKey
	end   time.Time // when to give up waiting for servers
}

func (r *rotation) run(c *cobra.Command) error {
	again := cli.Backoff{}
	for in, noted := (machinesapi.Rotate{Start: true}), machinesapi.RotationStep(""); ; {
		out, err := r.shell.Client().Operator().Rotate(c.Context(), r.key, in)
		if err != nil {
			return err
		}
		missing := missingServers(&out)
		if len(missing) == 0 || noted != out.Step {
			if err := r.print(&out, len(missing)); err != nil {
				return err
			}
		}
		switch {
		case out.Done:
			return r.finish()
		case out.Blocked != "":
			return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the new key is in use, but the old one cannot be removed yet: %s", out.Blocked),
				"set these secrets again (bourse secrets set), then repeat this command")
		case len(missing) == 0:
			again = cli.Backoff{}
		case r.shell.Now().After(r.end):
			return r.giveUp(&out, missing)
		default:
			noted = out.Step
			if err := again.Wait(c.Context()); err != nil {
				return err
			}
		}
		in.Start = out.Step == machinesapi.RotationCheck // nothing has begun yet
	}
}

// stepTexts describes the steps in the order in which they are carried out.
var stepTexts = map[machinesapi.RotationStep]string{
	machinesapi.RotationCheck:  "check that all servers answer",
	machinesapi.RotationAdd:    "give all servers the new key",
	machinesapi.RotationUse:    "encrypt with the new key",
	machinesapi.RotationRemove: "remove the old key",
}

func (r *rotation) print(out *machinesapi.Rotation, missing int) error {
	if r.shell.JSON {
		return r.shell.PrintLine(out)
	}
	_, err := fmt.Fprintf(r.shell.Out, "%-30s  %d of %s\n", stepTexts[out.Step], len(out.Servers)-missing, cli.Count(len(out.Servers), "server"))
	return err
}

func (r *rotation) finish() error {
	if r.shell.JSON {
		return nil
	}
	_, err := fmt.Fprintf(r.shell.Out, "the key of %s was replaced\n", map[machinesapi.SharedKey]string{machinesapi.KeyGossip: "the membership", machinesapi.KeySecrets: "secrets"}[r.key])
	return err
}

// giveUp returns the error for a step that some servers have not done.
func (r *rotation) giveUp(out *machinesapi.Rotation, missing []machinesapi.RotationServer) error {
	const most = 5
	for _, m := range missing[:min(most, len(missing))] {
		r.shell.Note(fmt.Sprintf("%s: %s", cli.Clean(string(m.ID)), cli.Clean(m.Error)))
	}
	err := bourse.Errorf(bourse.CodeUnavailable, "the rotation stopped at the step %q, which %s has not done", stepTexts[out.Step], cli.Count(len(missing), "server"))
	return cli.Hint(err, "repeat the command when they run: it continues where it stopped", "bourse member remove, for a worker that will not come back")
}

func missingServers(out *machinesapi.Rotation) (list []machinesapi.RotationServer) {
	for _, s := range out.Servers {
		if !s.OK {
			list = append(list, s)
		}
	}
	return list
}
