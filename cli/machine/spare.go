package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewSpare returns the "spare" commands.
func NewSpare(s *cli.Shell) *cobra.Command {
	c := cli.Noun("spare", "List and test spare machines", newSpareList(s), newTest(s))
	c.Aliases = []string{"spares"}
	return c
}

// Spare describes a standby, or any other machine that is not running and can be started on
// demand.
type Spare struct {
	ID     bourse.MachineID `json:"id"`
	Name   string           `json:"name"`
	Group  string           `json:"group,omitempty"`
	Region bourse.Region    `json:"region"`
	Worker bourse.WorkerID  `json:"worker"`
	State  bourse.State     `json:"state"`
	// Primaries lists the machines for which the spare is a standby. The spare is started if one
	// of them is lost. If the list is empty, only a request or a user starts the spare.
	Primaries []Primary `json:"for,omitempty"`
}

// Primary is a machine for which a spare stands by.
type Primary struct {
	ID     bourse.MachineID `json:"id"`
	Name   string           `json:"name,omitempty"` // "" if the machine no longer exists
	Worker bourse.WorkerID  `json:"worker,omitempty"`
	State  bourse.State     `json:"state,omitempty"`
}

// spares returns an app's standbys, and its machines that are stopped, suspended, or have
// not been started yet.
func spares(list []machinesapi.Machine) []Spare {
	out := []Spare{}
	for i := range list {
		m := &list[i]
		config := cmp.Or(m.Known(), &bourse.Config{})
		names := config.Standbys
		idle := m.State == bourse.StateStopped || m.State == bourse.StateSuspended || m.State == bourse.StateCreated
		if len(names) == 0 && !idle {
			continue
		}
		s := Spare{ID: m.ID, Name: m.Name, Group: config.Metadata[deploy.KeyGroup], Region: m.Region, Worker: m.Worker, State: m.State}
		for _, id := range names {
			t := Primary{ID: id}
			if at := slices.IndexFunc(list, func(o machinesapi.Machine) bool { return o.ID == id }); at >= 0 {
				t.Name, t.Worker, t.State = list[at].Name, list[at].Worker, list[at].State
			}
			s.Primaries = append(s.Primaries, t)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y Spare) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Region, y.Region), cmp.Compare(x.ID, y.ID))
	})
	return out
}

func newSpareList(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List an app's spares and the machines that they stand by for",
		Long: `List an app's spares. Some stand by for other machines: their workers start them
when those machines are lost. The others are stopped until a request arrives or
someone starts them. A spare on the same worker as its machine is lost together
with it.`,
		Example: "  bourse spare list -a shop",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := machines(c.Context(), s, app)
			if err != nil {
				return err
			}
			t := cli.NewTable("SPARE", "NAME", "GROUP", "REGION", "WORKER", "STATE", "STANDS BY FOR").Narrow(6, 1).Drop(2, 3).Wrap()
			return cli.PrintList(s, spares(list), "app "+app+" has no spares", t, func(x *Spare) []string {
				return []string{string(x.ID), x.Name, cmp.Or(x.Group, "-"), string(x.Region), string(x.Worker), string(x.State), x.primaries()}
			})
		},
	}
	s.BindApp(c, &app)
	return c
}

func (x *Spare) primaries() string {
	var parts []string
	for _, t := range x.Primaries {
		switch {
		case t.Name == "":
			parts = append(parts, string(t.ID)+" (does not exist)")
		case t.Worker == x.Worker:
			parts = append(parts, t.Name+" ("+string(t.State)+", on the same worker)")
		default:
			parts = append(parts, t.Name+" ("+string(t.State)+" on "+string(t.Worker)+")")
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func machines(ctx context.Context, s *cli.Shell, app string) ([]machinesapi.Machine, error) {
	end := cli.Spin(s.Err, "asking the workers")
	list, silent, err := s.Client().Machines(ctx, bourse.AppName(app), machinesapi.ListMachines{})
	end()
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, cli.Hint(err, "bourse app list")
	}
	s.WarnMissing(silent, "machines")
	return list, err
}
