package main

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/app"
	"github.com/bourse-dev/bourse/cli/config"
	"github.com/bourse-dev/bourse/cli/credentials"
	"github.com/bourse-dev/bourse/cli/deploy"
	"github.com/bourse-dev/bourse/cli/dev"
	"github.com/bourse-dev/bourse/cli/image"
	"github.com/bourse-dev/bourse/cli/machine"
	"github.com/bourse-dev/bourse/cli/order"
	"github.com/bourse-dev/bourse/cli/proxy"
	"github.com/bourse-dev/bourse/cli/region"
	"github.com/bourse-dev/bourse/cli/reservation"
	"github.com/bourse-dev/bourse/cli/secrets"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/cli/spare"
	"github.com/bourse-dev/bourse/cli/sql"
	"github.com/bourse-dev/bourse/cli/supervise"
	"github.com/bourse-dev/bourse/cli/task"
	"github.com/bourse-dev/bourse/cli/token"
	"github.com/bourse-dev/bourse/cli/view"
	"github.com/bourse-dev/bourse/cli/volume"
	"github.com/bourse-dev/bourse/cli/worker"
)

// commands are the nouns of the command line, with the servers that some run.
func commands(s *cli.Shell) []cli.Group {
	roles := serve.Roles{Worker: serveWorker, Broker: serveBroker, Proxy: serveProxy, NATS: serveNATS}
	stores := worker.Stores{Check: checkStore, Salvage: salvageStore}
	return []cli.Group{
		{Title: "Apps:", Commands: []*cobra.Command{
			deploy.New(s), deploy.NewRollback(s), deploy.NewReleases(s), deploy.NewScale(s),
			app.NewStatus(s), machine.NewLogs(s), machine.NewEvents(s), spare.New(s),
			app.New(s, deploy.NewAppReleases(s), deploy.NewAppRestart(s)), config.New(s), proxy.NewOpen(s), secrets.New(s),
		}},
		{Title: "Machines:", Commands: []*cobra.Command{machine.New(s), task.New(s), volume.New(s), image.New(s)}},
		{Title: "The exchange:", Commands: []*cobra.Command{
			order.New(s), order.NewQuote(s), reservation.New(s), region.New(s), worker.New(s, stores), proxy.New(s), sql.New(s), view.New(s), token.New(s),
		}},
		{Title: "Servers:", Commands: []*cobra.Command{dev.New(s, sweepHost), serve.New(s, roles), credentials.New(s), supervise.New(s, superviseTasks)}},
	}
}
