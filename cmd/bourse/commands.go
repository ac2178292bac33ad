package main

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/app"
	"github.com/bourse-dev/bourse/cli/cluster"
	"github.com/bourse-dev/bourse/cli/deploy"
	"github.com/bourse-dev/bourse/cli/login"
	"github.com/bourse-dev/bourse/cli/machine"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/cli/sql"
)

// commands are the nouns of the command line, with the servers that some run.
func commands(s *cli.Shell) []cli.Group {
	roles := serve.Roles{Worker: serveWorker, Broker: serveBroker, Proxy: serveProxy, NATS: serveNATS}
	return []cli.Group{
		{Title: "Apps:", Commands: []*cobra.Command{
			deploy.New(s), deploy.NewRollback(s), deploy.NewReleases(s), deploy.NewScale(s),
			app.NewStatus(s), machine.NewLogs(s), machine.NewEvents(s), machine.NewSpare(s),
			app.New(s, deploy.NewAppReleases(s), deploy.NewAppRestart(s)), deploy.NewConfig(s), cluster.NewOpen(s), app.NewSecrets(s),
		}},
		{Title: "Machines:", Commands: []*cobra.Command{machine.New(s), machine.NewTask(s), machine.NewVolume(s), deploy.NewImage(s)}},
		{Title: "The exchange:", Commands: []*cobra.Command{
			machine.NewOrder(s), machine.NewQuote(s), machine.NewReservation(s), cluster.NewRegion(s), cluster.NewWorker(s), cluster.NewProxy(s), sql.New(s), cluster.NewView(s), app.NewTokens(s),
		}},
		{Title: "Clusters:", Commands: []*cobra.Command{login.New(s), login.NewLogout(s), login.NewContext(s)}},
		{Title: "Servers:", Commands: []*cobra.Command{serve.NewDev(s, sweepHost), serve.New(s, roles), app.NewCredentials(s), serve.NewSupervise(s, superviseTasks)}},
	}
}
