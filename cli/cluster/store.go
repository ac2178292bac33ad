package cluster

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// StoreReport is what was found in the files of a worker's store.
type StoreReport struct {
	Version  int      `json:"version"`
	Keys     int64    `json:"keys"`
	Records  int      `json:"records"`
	Machines int      `json:"machines"`
	Damage   []string `json:"damage"`
	Lost     []string `json:"lost,omitempty"`
	Kept     []string `json:"kept,omitempty"`
}

// Stores looks at the stores of workers that do not run: Check reports what is
// damaged, Salvage makes a new store of what is whole.
type Stores struct {
	Check, Salvage func(dir string) (StoreReport, error)
}

var errNoData = bourse.Errorf(bourse.CodeInvalid, "--data is required: the directory in which the worker keeps its machines")

func newStore(s *cli.Shell, stores Stores) *cobra.Command {
	return cli.Noun("store", "Look at the files of a worker that does not run, and salvage damaged ones", newStoreCheck(s, stores), newStoreSalvage(s, stores))
}

func newStoreCheck(s *cli.Shell, stores Stores) *cobra.Command {
	var data string
	c := &cobra.Command{
		Use:   "check --data DIRECTORY",
		Short: "Check whether a worker's records are whole",
		Long: `Look at every page and record of the files in which a worker keeps its machines,
worker.db and the log beside it, and change nothing. The worker must not run.

Ends with 0 when all is as it was written, and with 1 when something is damaged.`,
		Example: `  bourse worker store check --data /var/lib/bourse`,
		Args:    cli.Exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if data == "" {
				return errNoData
			}
			r, err := stores.Check(data)
			if err != nil {
				return err
			}
			if err := printStore(s, &r); err != nil || len(r.Damage) == 0 {
				return err
			}
			return cli.Beside(cli.Hint(bourse.Errorf(bourse.CodeInternal, "the store is damaged"), "bourse worker store salvage --data "+data))
		},
	}
	c.Flags().StringVar(&data, "data", "", "the worker's data `directory` (required)")
	return c
}

func newStoreSalvage(s *cli.Shell, stores Stores) *cobra.Command {
	var data string
	var yes bool
	c := &cobra.Command{
		Use:   "salvage --data DIRECTORY",
		Short: "Make a new store of what is whole in a damaged one",
		Long: `Make a new worker.db of all records that are whole in a damaged one and its log.
The damaged files are kept beside it, with a time in their names. The worker must
not run.

What is lost is unknown from then on. Orders whose records are lost may be filled
again when their clients repeat them. Where records of the log are lost, others may
be older than they were: a machine that was destroyed last may come back. Machines
that run and have no record any more are named when the worker starts, which it
then does only with --forget-machines. A copy of the directory that is whole is
better than what this can do.`,
		Example: `  bourse worker store salvage --data /var/lib/bourse`,
		Args:    cli.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if data == "" {
				return errNoData
			}
			if err := s.Confirm(c.Context(), yes, "make a new store of what is whole in "+data); err != nil {
				return err
			}
			r, err := stores.Salvage(data)
			if err != nil {
				return err
			}
			return printStore(s, &r)
		},
	}
	c.Flags().StringVar(&data, "data", "", "the worker's data `directory` (required)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func printStore(s *cli.Shell, r *StoreReport) error {
	if s.JSON {
		if r.Damage == nil {
			r.Damage = []string{}
		}
		return s.PrintJSON(r)
	}
	fmt.Fprintf(s.Out, "%s of machines, %d records in all in worker.db, %d changes in the log\n", cli.Count(r.Machines, "record"), r.Keys, r.Records)
	for _, d := range r.Damage {
		fmt.Fprintln(s.Out, "damaged: "+d)
	}
	for _, l := range r.Lost {
		fmt.Fprintln(s.Out, "lost: "+l)
	}
	if len(r.Kept) > 0 {
		fmt.Fprintln(s.Out, "kept: "+strings.Join(r.Kept, ", "))
	}
	if len(r.Damage) == 0 {
		fmt.Fprintln(s.Out, "all is as it was written")
	}
	return nil
}
