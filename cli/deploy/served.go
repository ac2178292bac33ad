package deploy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// A proxy knows a new app once its view of the cluster has caught up.
const (
	urlWithin = 3 * time.Second
	urlStep   = 200 * time.Millisecond
)

// printURL prints the URL at which proxies serve an app, if its machines have ports and
// there is a proxy. The deploy has succeeded, so an error here is not reported.
func (d *deployer) printURL(ctx context.Context, app *deploy.App) error {
	if d.shell.JSON || !slices.ContainsFunc(app.Groups, hasPorts) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, urlWithin)
	defer cancel()
	for {
		list, err := machinesapi.Proxies{Client: d.client}.Of(ctx, app.Name)
		if err != nil || len(list) == 0 {
			return nil
		}
		if urls := cli.URLs(list); len(urls) > 0 {
			_, err := fmt.Fprintf(d.shell.Out, "%s  served at %s\n", app.Name, cli.Clean(urls[0]))
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(urlStep):
		}
	}
}

func hasPorts(g deploy.Group) bool {
	return slices.ContainsFunc(workload.Services(&g.Config), func(s workload.Service) bool { return len(s.Ports) > 0 })
}
