package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestReviewServices(t *testing.T) {
	const ports = `"ports":[{"port":80}]`
	for name, c := range map[string]struct {
		services string
		task     bool
		want     []string
	}{
		"none":                         {services: `[]`},
		"nothing is asked":             {services: `[{"internal_port":80}]`},
		"to zero and back":             {services: `[{"autostop":"stop","autostart":true,` + ports + `}]`},
		"by default":                   {services: `[{"autostop":"suspend",` + ports + `}]`},
		"started by hand":              {services: `[{"autostop":"suspend","autostart":false,` + ports + `}]`, want: []string{"config.services[0].autostart: the machine is stopped"}},
		"one of two starts":            {services: `[{"autostop":"stop","autostart":false,` + ports + `},{"autostop":"stop","autostart":true,` + ports + `}]`},
		"one that starts has no ports": {services: `[{"autostop":"stop","autostart":false,` + ports + `},{"autostop":"stop","autostart":true}]`, want: []string{"config.services[0].autostart: the machine is stopped"}},
		"no ports":                     {services: `[{"autostop":"stop","autostart":true}]`, want: []string{"config.services[0].ports: no service has ports"}},
		"udp": {
			services: `[{"protocol":"udp","autostop":"stop","autostart":true,` + ports + `}]`,
			want:     []string{"config.services[0].protocol: proxies do not serve udp", "config.services[0].ports: no service has ports"},
		},
		"one says stop, one off": {services: `[{` + ports + `},{"autostop":"stop",` + ports + `}]`, want: []string{"config.services[1].autostop: the machine is not stopped"}},
		"warm":                   {services: `[{"autostop":"stop","autostart":true,` + ports + `}]`, task: true, want: []string{"config.services[0].autostop: a machine that is warm"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := bourse.Config{StoredConfig: bourse.StoredConfig{Services: json.RawMessage(c.services)}}
			if c.task {
				conf.Task = &bourse.TaskConfig{}
			}
			got := reviewServices(&conf, Services(&conf))
			ok := len(got) == len(c.want)
			for i := range got {
				ok = ok && strings.HasPrefix(got[i].String(), c.want[i])
			}
			if !ok {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
