package serve

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func TestDevConfig(t *testing.T) {
	good := func() config {
		return config{regions: []string{"gru", "mad"}, workers: 2, fabric: fabricDirect, api: "127.0.0.1:0", proxy: defaultProxy, cpus: "4", memory: "4GiB"}
	}
	d := good()
	if err := d.validate(); err != nil {
		t.Fatalf("valid config: %v", err)
	}
	for name, spoil := range map[string]func(*config){
		"no worker": func(d *config) { d.workers = 0 }, "too many": func(d *config) { d.workers = 1000 },
		"overflow": func(d *config) { d.regions, d.workers = []string{"gru", "mad", "ord"}, 6148914691236517207 }, "no region": func(d *config) { d.regions = nil },
		"region twice": func(d *config) { d.regions = []string{"gru", "gru"} }, "alias": func(d *config) { d.regions = []string{"eu"} },
		"open": func(d *config) { d.api = "0.0.0.0:4280" }, "no address": func(d *config) { d.api = "x" },
		"open proxy": func(d *config) { d.proxy, d.proxyGiven = "0.0.0.0:80", true }, "no proxy address": func(d *config) { d.proxy = "x" },
		"cpus": func(d *config) { d.cpus = "-1" }, "fabric": func(d *config) { d.fabric = "tcp" }, "memory": func(d *config) { d.memory = "lots" },
	} {
		d := good()
		spoil(&d)
		if err := d.validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestDevPorts(t *testing.T) {
	for _, n := range []int{1, 6, maxWorkers} {
		for _, anywhere := range []bool{false, true} {
			last := uint16(0)
			ports := portRanges(n, anywhere)
			for i := range n {
				r, err := cli.ParsePorts(ports(i))
				if err != nil || r.First <= last || r.Last >= 32768 || r.Last-r.First < 99 {
					t.Fatalf("worker %d of %d: ports %s (%v), want at least 100 ports above %d and below 32768", i, n, ports(i), err, last)
				}
				last = r.Last
			}
		}
	}
}
