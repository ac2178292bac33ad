package admit

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestPortOf(t *testing.T) {
	private := netip.MustParseAddr("fdaa::1")
	env := bourse.Config{Env: map[string]string{"PORT": "3000"}}
	tests := []struct {
		name    string
		m       bourse.Machine
		service int
		want    int
	}{
		{"the host's network: $PORT, whatever port the service names", bourse.Machine{Boot: bourse.Boot{Port: 20001}}, 8080, 20001},
		{"the host's network: $PORT", bourse.Machine{Boot: bourse.Boot{Port: 20001}}, 0, 20001},
		{"the host's network: the PORT in the machine's environment", bourse.Machine{Config: env}, 8080, 3000},
		{"the host's network: an invalid PORT", bourse.Machine{Config: bourse.Config{Env: map[string]string{"PORT": "x"}}}, 8080, 0},
		{"its own network", bourse.Machine{PrivateIP: private, Config: env}, 8080, 8080},
		{"a private network: $PORT", bourse.Machine{PrivateIP: private, Config: env}, 0, 3000},
		{"a private network: no $PORT", bourse.Machine{PrivateIP: private}, 0, 0},
	}
	for _, tt := range tests {
		if got, _ := PortOf(&tt.m, tt.service); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// find does not try to bind ports that machines have, and tries a limited number of other ports.
func TestFindPort(t *testing.T) {
	const first, n = 20000, 1000
	ports := PortRange{First: first, Last: first + n - 1}
	for name, c := range map[string]struct {
		from, taken, used int // number of ports that machines have, and of ports after them that other programs use
		port, tried       int
	}{
		"the first one":                {0, 0, 0, first, 1},
		"machines have all except one": {0, n - 1, 0, first + n - 1, 1},
		"from the last one":            {n - 1, 0, 0, first + n - 1, 1},
		"around the end":               {n - 1, n - 1, n, 0, 1},
		"as many in use as find tries": {0, 10, maxBinds - 1, first + 10 + maxBinds - 1, maxBinds},
		"more used":                    {0, 10, maxBinds, 0, maxBinds},
		"machines have all":            {0, n, 0, 0, 0},
	} {
		taken := func(port int) bool { return port < first+c.taken }
		bind := func(port int) error {
			if port < first+c.taken+c.used {
				return syscall.EADDRINUSE
			}
			return nil
		}
		if port, tried := ports.find(c.from, taken, bind); port != c.port || tried != c.tried {
			t.Errorf("%s: port %d after %d attempts, want %d after %d", name, port, tried, c.port, c.tried)
		}
	}
}
