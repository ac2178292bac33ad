package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) workerShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show WORKER",
		Aliases:           []string{"status"},
		Short:             "Show a worker: its ledger, labels and machines",
		Args:              exactly(1),
		ValidArgsFunction: s.completeWorker,
		RunE: func(c *cobra.Command, args []string) error {
			w, err := s.client().Worker(c.Context(), bourse.WorkerID(args[0]))
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return hint(err, "bourse worker list")
			}
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(w)
			}
			return s.printWorker(&w)
		},
	}
}

func (s *shell) printWorker(w *machinesapi.Worker) error {
	var f facts
	f.add("worker", string(w.ID))
	f.add("region", string(w.Region))
	f.add("status", workerStatus(w))
	f.add("error", w.Error)
	f.add("address", whereOf(w))
	f.add("tag", w.Tag)
	if w.Facts != nil {
		f.add("version", w.Facts.Version)
		f.add("drivers", strings.Join(w.Facts.Drivers, ", "))
		f.add("load", fmt.Sprintf("%.2f per core", w.Facts.Load))
		f.add("machines", showStates(w.Facts.Machines))
		for _, name := range sortedKeys(w.Facts.Labels) {
			f.add("label", name+"="+w.Facts.Labels[name])
		}
	}
	if err := f.write(s.Out); err != nil || w.Facts == nil {
		return err
	}
	fmt.Fprintln(s.Out)
	return accountTable(w.Facts.Accounts).write(s.Out, s.Out.Width)
}

// accountTable shows a ledger, with what reservations hold of the used where
// they hold anything.
func accountTable(accounts []bourse.Account) *table {
	if !slices.ContainsFunc(accounts, func(a bourse.Account) bool { return a.Held > 0 }) {
		t := newTable("RESOURCE", "TOTAL", "USED", "FREE").numbers(1, 2, 3)
		for _, a := range accounts {
			r := string(a.Resource)
			t.row(r, amount(r, a.Total), amount(r, a.Used), amount(r, a.Free()))
		}
		return t
	}
	t := newTable("RESOURCE", "TOTAL", "USED", "(HELD)", "FREE").numbers(1, 2, 3, 4)
	for _, a := range accounts {
		r := string(a.Resource)
		t.row(r, amount(r, a.Total), amount(r, a.Used), amount(r, a.Held), amount(r, a.Free()))
	}
	return t
}

// showStates counts machines by state, in the order of a machine's life.
func showStates(counts map[bourse.State]int) string {
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
