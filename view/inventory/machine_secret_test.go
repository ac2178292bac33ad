package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestTheViewHasNoEnvironment checks that a machine's row contains neither its environment nor
// its files, because every server of the cluster has a copy of the row.
func TestTheViewHasNoEnvironment(t *testing.T) {
	const secret = "hunter2"
	row := MachineRow(&bourse.Machine{
		ID: "148e21aabbccdd", Config: bourse.Config{
			Image: "nginx", Env: map[string]string{"PASSWORD": secret}, Files: []bourse.File{{GuestPath: "/s", RawValue: []byte(secret)}},
			Metadata: map[string]string{"a": "b"}, StoredConfig: bourse.StoredConfig{
				Processes: []byte(`[{"env":{"A":"` + secret + `"}}]`), Services: []byte(`[{"internal_port":80}]`),
			},
		},
		Lease: &bourse.Lease{Nonce: secret, Owner: "ann"},
	})
	if text := fmt.Sprint(row.Columns); strings.Contains(text, secret) || strings.Contains(text, "aHVudGVyMg") {
		t.Errorf("the row contains %s", text)
	}
	config, _ := row.Columns["config"].(string)
	for _, want := range []string{"nginx", `"metadata":{"a":"b"}`, `"internal_port":80`} {
		if !strings.Contains(config, want) {
			t.Errorf("config %s lacks %s", config, want)
		}
	}
}
