package host

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
)

// clocksToRead is the maximum number of other servers whose clocks are read.
const clocksToRead = 8

// clocks selects up to clocksToRead servers whose clocks are read, and returns their
// addresses. Brokers come first, because workers and proxies answer only if this host has a
// valid certificate.
func (c *cluster) clocks(others []bourse.Member) []string {
	var out []string
	for _, address := range c.joined() {
		if api, gossip := serve.Ports(bourse.RoleBroker); strings.HasSuffix(address, fmt.Sprintf(":%d", gossip)) {
			host, _, _ := net.SplitHostPort(address)
			out = append(out, net.JoinHostPort(host, strconv.Itoa(int(api))))
		}
	}
	for _, brokers := range []bool{true, false} {
		for _, m := range others {
			if (m.Role == bourse.RoleBroker) == brokers && !slices.Contains(out, m.Address) {
				out = append(out, m.Address)
			}
		}
	}
	return out[:min(len(out), clocksToRead)]
}

// checkClock compares this host's clock with those of other servers. It does not verify
// their certificates, because all certificates look invalid if this host's clock is
// wrong.
func (c *cluster) checkClock(ctx context.Context, addresses []string) []finding {
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // see above
	if c.creds != nil {
		config.Certificates = c.creds.Client().Certificates
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: stepLimit}
	scheme := "http://"
	if c.secure {
		scheme = "https://"
	}
	var mu sync.Mutex // guards ahead
	ahead := map[string]time.Duration{}
	forEach(len(addresses), func(i int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+addresses[i]+"/", nil)
		if err != nil {
			return
		}
		sent := c.now()
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		ahead[addresses[i]] = aheadOf(date, sent, c.now())
	})
	if len(addresses) == 0 {
		return nil
	}
	return []finding{compareClocks(ahead)}
}

// aheadOf returns the smallest possible difference between this host's clock and a server's
// clock. It is positive if this host's clock is ahead, negative if it is behind, and 0 if
// the clocks may agree. date is the server's time, truncated to a second, at some moment
// between sent and received.
func aheadOf(date, sent, received time.Time) time.Duration {
	if least := sent.Sub(date.Add(time.Second)); least > 0 {
		return least
	}
	return min(0, received.Sub(date))
}

// Clock differences above which compareClocks returns a warning or a problem.
const (
	clockWarning = time.Second
	clockProblem = 30 * time.Second
)

// compareClocks returns the finding for this host's clock. ahead maps the address of each
// other server to the time by which this host's clock is ahead of that server's clock.
func compareClocks(ahead map[string]time.Duration) finding {
	const name = "clock"
	if len(ahead) == 0 {
		return warning(name, "correct the problems with the other members first", "not checked: no server on another host answered")
	}
	worst, differ := "", 0
	for _, address := range slices.Sorted(maps.Keys(ahead)) {
		d := ahead[address].Abs()
		if d > clockWarning {
			differ++
		}
		if worst == "" || d > ahead[worst].Abs() {
			worst = address
		}
	}
	if differ == 0 {
		return ok(name, "agrees with that of %s", cli.Count(len(ahead), "other server"))
	}
	difference, direction := ahead[worst].Abs(), "ahead of"
	if ahead[worst] < 0 {
		direction = "behind"
	}
	f := warning(name, "synchronize the clock of this host, for example with chrony", "%s %s that of %s", difference.Round(time.Second), direction, worst)
	if difference > clockProblem {
		f.Status = statusProblem
	}
	if same := len(ahead) - differ; same > differ {
		f.Try = "synchronize the clock of that host, for example with chrony"
		f.Finding += fmt.Sprintf("; agrees with that of %s", cli.Count(same, "other server"))
	}
	return f
}
