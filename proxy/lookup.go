package proxy

import (
	"context"

	"github.com/bourse-dev/bourse/proxy/route"
)

// mostUnknown bounds the requests that wait for news of their host names.
const mostUnknown = 1024

// lookUp finds the target of a host name and a port. What is not known is waited for
// for a moment: who has just made a machine, and been told so, may ask before the view
// has brought it here.
func (p *Proxy) lookUp(ctx context.Context, host string, port int) (*route.Target, error) {
	changed := p.Routes.Changed()
	t, err := p.Routes.Find(host, port)
	if err == nil {
		return t, nil
	}
	defer p.unknown.Add(-1)
	if p.unknown.Add(1) > mostUnknown {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.News)
	defer cancel()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
		changed = p.Routes.Changed()
		if t, err = p.Routes.Find(host, port); err == nil {
			return t, nil
		}
	}
}
