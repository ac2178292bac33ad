// Command bourse contains all of Bourse in one program: the command line, the servers,
// and the machines' supervisor.
//
// This package only connects the parts. It creates them, and starts and stops them in
// order. serve_worker.go, serve_broker.go and serve_proxy.go contain one server each.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/app"
	"github.com/bourse-dev/bourse/cli/cluster"
	"github.com/bourse-dev/bourse/cli/deploy"
	hostcli "github.com/bourse-dev/bourse/cli/host"
	"github.com/bourse-dev/bourse/cli/login"
	"github.com/bourse-dev/bourse/cli/machine"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/cli/sql"
	"github.com/bourse-dev/bourse/cli/wireguard"
)

// release is the program's release. "make build" sets it through the linker.
var release string

func main() { os.Exit(run()) }

func run() int {
	if outlive := companionMain(os.Args); outlive != nil {
		return outlive(os.Args[2])
	}
	// The first signal cancels ctx, which stops everything cleanly. After that, signals have their default effect, so a
	// second one terminates the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, cli.Process(version()), os.Args[1:], commands)
}

// version returns the release that was set by the linker, or otherwise the module's
// version. It includes the commit if the build recorded it.
func version() cli.Version {
	v := cli.Version{Release: release}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Release == "" && info.Main.Version != "(devel)" {
		v.Release = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}

// commands returns the commands, arranged in groups.
func commands(s *cli.Shell) []cli.Group {
	roles := serve.Roles{Worker: serveWorker, Broker: serveBroker, Proxy: serveProxy, NATS: serveNATS}
	return []cli.Group{
		{Title: "Apps:", Commands: []*cobra.Command{
			deploy.New(s), deploy.NewRollback(s), deploy.NewReleases(s), deploy.NewScale(s),
			app.NewStatus(s), machine.NewLogs(s), machine.NewEvents(s), machine.NewSpare(s),
			app.New(s, deploy.NewAppReleases(s), deploy.NewAppRestart(s)), deploy.NewConfig(s), cluster.NewOpen(s), app.NewSecrets(s), wireguard.New(s),
		}},
		{Title: "Machines:", Commands: []*cobra.Command{machine.New(s), machine.NewTask(s), machine.NewVolume(s), deploy.NewImage(s)}},
		{Title: "The exchange:", Commands: []*cobra.Command{
			machine.NewOrder(s), machine.NewQuote(s), machine.NewReservation(s), cluster.NewRegion(s), cluster.NewWorker(s), cluster.NewPolicy(s), cluster.NewProxy(s), sql.New(s), cluster.NewView(s), app.NewTokens(s),
		}},
		{Title: "Clusters:", Commands: []*cobra.Command{
			hostcli.NewInit(s), hostcli.NewJoin(s), hostcli.NewDoctor(s), hostcli.NewBackup(s), hostcli.NewRestore(s), cluster.NewMember(s), login.New(s), login.NewLogout(s), login.NewContext(s),
		}},
		{Title: "Servers:", Commands: []*cobra.Command{serve.NewDev(s, sweepHost), serve.New(s, roles), app.NewCredentials(s), serve.NewSupervise(s, superviseTasks)}},
	}
}
