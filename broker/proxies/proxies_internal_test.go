package proxies

import (
	"encoding/json"
	"testing"
)

// FuzzDecode: what a proxy says is read or refused, and can be written again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"region":"gru","routes":[{"app":"web","app_id":"1","ports":"80","handlers":["http"],"urls":["http://web.localhost/"],"machines":[{"machine":"148e21ea1d5389","use":"yes"}]}]}`))
	f.Add([]byte(`{"routes":[{"machines":null}],"error":"x"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		said, err := decode(raw)
		if err != nil {
			return
		}
		if _, err := json.Marshal(said); err != nil || said.Error != "" {
			t.Errorf("%v, error %q", err, said.Error)
		}
	})
}
