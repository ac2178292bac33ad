package workload_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// TestConfigFieldsOfAWrongTypeAreRefused checks that a field of the wrong type is refused with an error that contains
// the field's path.
func TestConfigFieldsOfAWrongTypeAreRefused(t *testing.T) {
	for field, path := range map[string]string{
		`"services":{}`:                                  "config.services:",
		`"services":[{"internal_port":"80"}]`:            "config.services.internal_port",
		`"services":[{"ports":[{"port":[80]}]}]`:         "config.services.ports.port",
		`"services":[{"autostop":"sometimes"}]`:          "config.services.autostop",
		`"services":[{"checks":[{"interval":"often"}]}]`: "config.services.checks.interval",
		`"checks":[1]`:                                   "config.checks:",
		`"checks":{"alive":{"port":"eighty"}}`:           "config.checks.alive.port",
		`"checks":{"alive":{"timeout":true}}`:            "config.checks.alive.timeout",
		`"processes":[{"exec":"sh"}]`:                    "config.processes.exec",
		`"containers":{"name":"a"}`:                      "config.containers:",
		`"containers":[{"name":"a"}]`:                    "config.containers:",
		`"volumes":[{"name":"a"}]`:                       "config.volumes:",
		`"metrics":[]`:                                   "config.metrics:",
		`"statics":[{"guest_path":1}]`:                   "config.statics.guest_path",
	} {
		var c bourse.Config
		if err := json.Unmarshal([]byte(`{"image":"host","init":{"exec":["true"]},`+field+`}`), &c); err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		err := workload.Validate(&c.StoredConfig)
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), path) {
			t.Errorf("%s: %v, want an error that contains %s", field, err, path)
		}
	}
}

// TestConfigFieldsOfClientsAreAccepted checks that configs are accepted in the form in which Machines API clients send
// them.
func TestConfigFieldsOfClientsAreAccepted(t *testing.T) {
	const body = `{"image":"host","init":{"exec":["true"]},"schedule":"daily","standbys":["148e21aabbccdd"],"dns":{},"statics":[{"guest_path":"/p","url_prefix":"/s"}],
		"services":[{"protocol":"tcp","internal_port":8080,"autostop":true,"force_instance_key":null,"ports":[{"port":443,"handlers":["tls","http"],
			"http_options":{"response":{"headers":{"x":["a"],"y":false}}}}],"checks":[{"type":"http","interval":15000000000,"headers":[{"name":"h","values":["v"]}]}]}],
		"checks":{"alive":{"type":"tcp","port":80,"interval":"15s"}},"metrics":{"port":9091,"path":"/metrics"},"processes":[{"cmd":["a"],"env":{"A":"b"}}],
		"containers":[],"volumes":null}`
	var c bourse.Config
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	if err := workload.Validate(&c.StoredConfig); err != nil {
		t.Fatal(err)
	}
}
