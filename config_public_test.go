package bourse_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

const secret = "hunter2"

// secretConfig has a secret in every place that is a tenant's own.
func secretConfig(image string) bourse.Config {
	return bourse.Config{
		Image: image, Guest: &bourse.Guest{MemoryMB: 64}, Env: map[string]string{"PASSWORD": secret, "PORT": secret},
		Init:         bourse.Init{Exec: []string{"login", secret}, User: "nobody"},
		Requirements: bourse.Requirements{"slots": {Count: 1}},
		DNS:          &bourse.DNS{Hostname: "h"},
		Kept: bourse.Kept{
			Processes:  json.RawMessage(`[{"env":{"A":"` + secret + `"}}]`),
			Containers: json.RawMessage(`[{"env":{"A":"` + secret + `"}}]`),
		},
	}
}

// A quote is asked for without environment, files, command and payload, and is
// still an order that workers judge as they will judge its claim.
func TestQuotesCarryNoSecrets(t *testing.T) {
	for _, image := range []string{bourse.ImageHost, "nginx"} {
		order := bourse.Order{
			ID: bourse.NewOrderID(), App: bourse.App{Name: "shop", ID: bourse.NewAppID()}, Regions: []bourse.Choice{{"gru"}}, Config: secretConfig(image),
		}
		if image == "nginx" {
			order.Config.Files = []bourse.File{{GuestPath: "/run/secret", RawValue: []byte(secret)}}
		}
		if err := order.Config.Normalize(); err != nil {
			t.Fatal(err)
		}
		asked := order.Asked()
		text, err := json.Marshal(asked)
		if err != nil || strings.Contains(string(text), secret) || asked.Config.Files != nil {
			t.Errorf("asked with %s, %v", text, err)
		}
		if err := asked.Validate(); err != nil {
			t.Errorf("image %s: %v", image, err)
		}
		if _, ok := asked.Config.Env["PORT"]; !ok || asked.Config.Requirements["slots"].Count != 1 || *asked.Config.Guest != *order.Config.Guest {
			t.Errorf("asked for %+v", asked.Config)
		}
		if order.Config.Env["PASSWORD"] != secret || order.Config.Init.User != "nobody" {
			t.Error("the order itself was changed")
		}
	}
}

// What every server may hold of a config has no environment.
func TestAPublicConfigHasNoEnvironment(t *testing.T) {
	config := secretConfig("nginx")
	config.Init = bourse.Init{}
	config.Files = []bourse.File{{GuestPath: "/run/secret", RawValue: []byte(secret)}}
	text, err := json.Marshal(config.Public())
	if err != nil || strings.Contains(string(text), secret) || !strings.Contains(string(text), "nginx") {
		t.Errorf("public: %s, %v", text, err)
	}
}
