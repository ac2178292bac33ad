package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newPS(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "ps MACHINE",
		Short: "List a machine's processes and the addresses that they listen on",
		Long: `List a machine's processes and the addresses that they listen on, as reported by
its host's kernel, the main process first. For a program with image "host" that has
no separate cgroup, background processes are not listed.`,
		Example:           "  bourse machine ps quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolve(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			list, err := machinesapi.Processes(c.Context(), s.Client(), bourse.AppName(app), id)
			if err != nil {
				return about(err, app, id)
			}
			return cli.PrintList(s, list, "machine "+string(id)+" has no processes",
				cli.NewTable("PID", "CPU", "MEMORY", "AGE", "LISTENS ON", "COMMAND").Numbers(0, 1, 2, 3).Narrow(5).Drop(3), processRow)
		},
	}
	s.BindApp(c, &app)
	return c
}

func processRow(p *bourse.Process) []string {
	listens := make([]string, len(p.Listens))
	for i, l := range p.Listens {
		listens[i] = l.Proto + " " + l.Address
	}
	return []string{
		fmt.Sprint(p.PID), milliseconds(p.CPU), bourse.ResourceMemory.Show(p.RSS >> 20), milliseconds(p.RTime), strings.Join(listens, ", "), p.Command,
	}
}

func milliseconds(n int64) string {
	return (time.Duration(n) * time.Millisecond).Round(100 * time.Millisecond).String()
}
