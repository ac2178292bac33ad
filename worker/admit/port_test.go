package admit_test

import (
	"net/netip"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
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
		{"the host's network: $PORT, whatever the service says", bourse.Machine{Boot: bourse.Boot{Port: 20001}}, 8080, 20001},
		{"the host's network: $PORT", bourse.Machine{Boot: bourse.Boot{Port: 20001}}, 0, 20001},
		{"the host's network: the $PORT of its own choice", bourse.Machine{Config: env}, 8080, 3000},
		{"the host's network: a $PORT that is none", bourse.Machine{Config: bourse.Config{Env: map[string]string{"PORT": "x"}}}, 8080, 0},
		{"its own network", bourse.Machine{PrivateIP: private, Config: env}, 8080, 8080},
		{"its own network: $PORT", bourse.Machine{PrivateIP: private, Config: env}, 0, 3000},
		{"its own network: no $PORT", bourse.Machine{PrivateIP: private}, 0, 0},
	}
	for _, tt := range tests {
		if got, _ := admit.PortOf(&tt.m, tt.service); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
