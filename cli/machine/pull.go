package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// pullInterval is the interval at which the progress of an order's image pull is polled.
const pullInterval = 300 * time.Millisecond

// followPull shows the progress of an order, and of the image pull that it waits for, until end is called. Pass true to
// end if the order was filled. followPull does not report errors from its own requests.
func followPull(ctx context.Context, s *cli.Shell, app bourse.AppName, image string, order bourse.OrderID) (end func(filled bool)) {
	spin := cli.Spin(s.Err, "placing order "+string(order))
	if s.JSON || bourse.KindOfImage(image) != bourse.RegistryImage {
		return func(bool) { spin() }
	}
	ctx, cancel := context.WithCancel(ctx)
	p := pullProgress{Shell: s, image: image, bars: cli.Bars{Out: s.Err}, first: spin}
	var following sync.WaitGroup
	following.Go(func() { p.follow(ctx, app, order) })
	return func(filled bool) {
		cancel()
		following.Wait()
		spin()
		p.end(filled)
	}
}

// pullProgress shows an order's image pulls, one worker at a time.
type pullProgress struct {
	*cli.Shell
	image string
	bars  cli.Bars
	first func() // stops the spinner before the first pull is shown
	last  machinesapi.PullLine
	began time.Time // when the current worker's pull was first seen
}

// follow polls and shows the pulls of an order until ctx is done.
func (p *pullProgress) follow(ctx context.Context, app bourse.AppName, order bourse.OrderID) {
	tick := time.NewTicker(pullInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		line, err := p.Client().OrderPull(ctx, app, order)
		switch code := bourse.CodeOf(err); {
		case err == nil && line.Image != nil && line.Image.Pull != nil:
			p.show(line)
		case err != nil && code != bourse.CodeNotFound && code != bourse.CodeUnavailable:
			return
		}
	}
}

func (p *pullProgress) show(line machinesapi.PullLine) {
	p.first()
	if line.Worker != p.last.Worker {
		p.end(false)
		p.began = p.Now()
		if !p.Err.TTY {
			p.Note(fmt.Sprintf("%s is pulling %s", cli.Clean(string(line.Worker)), p.image))
		}
	}
	p.last = line
	if p.Err.TTY {
		p.bars.Set(cli.PullBar(string(line.Worker), line.Image))
	}
}

// end shows the outcome of the last pull, if a pull was shown.
func (p *pullProgress) end(filled bool) {
	if p.last.Worker == "" {
		return
	}
	status := "not pulled"
	if filled {
		status = "pulled in " + cli.Took(p.Now().Sub(p.began))
	}
	p.bars.Set(cli.Bar{Name: string(p.last.Worker), Status: status, Over: true})
}
