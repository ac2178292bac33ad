package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newStatus(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "status [APP]",
		Short: "Show each proxy's routes, and why machines are not used",
		Long: `Show each proxy's routes to the machines of an app. Without APP, the routes of all apps
are shown, which requires an unrestricted token. USE shows when requests are sent to a
machine:
  yes    now
  start  if the other machines are overloaded, or there are none
  last   only if there is no other machine
  full   once one of its requests ends
  no     not in its current state`,
		Example: `  bourse proxy status shop
  bourse proxy status --json | jq '.[].routes[] | {app, urls}'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, args []string) error {
			ask := machinesapi.Proxies{Client: s.Client()}
			var list []machinesapi.Proxy
			var err error
			if len(args) == 0 {
				if list, err = ask.All(c.Context()); bourse.CodeOf(err) == bourse.CodeForbidden {
					return cli.Hint(err, "bourse proxy status APP")
				}
			} else {
				list, err = ask.Of(c.Context(), bourse.AppName(args[0]))
			}
			if err != nil {
				return notFound(err)
			}
			if s.JSON {
				return s.PrintJSON(list)
			}
			return printProxies(s, list)
		},
	}
}

func notFound(err error) error {
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return cli.Hint(err, "bourse app list")
	}
	return err
}

func printProxies(s *cli.Shell, list []machinesapi.Proxy) error {
	if len(list) == 0 {
		s.Note("no proxies are running; start one with: bourse serve proxy")
		return nil
	}
	t := cli.NewTable("PROXY", "APP", "PORTS", "MACHINE", "REGION", "STATE", "REQUESTS", "USE", "WHY").Numbers(6).Narrow(8, 0).Drop(4)
	silent := cli.NewTable("PROXY", "ERROR").Narrow(1)
	for i := range list {
		p := &list[i]
		if p.Error != "" {
			silent.Row(string(p.ID), p.Error)
		}
		for j := range p.Routes {
			for k := range p.Routes[j].Machines {
				t.Row(row(p, &p.Routes[j], &p.Routes[j].Machines[k])...)
			}
		}
	}
	if t.Empty() {
		s.Note("no machine has a port for proxies to serve; to add one: bourse machine run --port 80")
	} else if err := t.Write(s.Out); err != nil {
		return err
	}
	if silent.Empty() {
		return nil
	}
	return silent.Write(s.Err)
}

func row(p *machinesapi.Proxy, t *machinesapi.ProxyRoute, m *machinesapi.ProxyMachine) []string {
	requests := fmt.Sprint(m.Requests + m.OtherRequests)
	if m.Soft > 0 {
		requests += fmt.Sprintf("/%d", m.Soft)
	}
	return []string{
		string(p.ID), string(t.App), t.Ports, string(m.Machine), string(m.Region), string(m.State), requests, string(m.Use), m.Why,
	}
}
