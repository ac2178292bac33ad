package bourse_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/workload"
)

// What Bourse has no field for is given back where it came from, at every depth,
// through the records and the view too.
func TestConfigKeepsWhatItDoesNotKnow(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":    `{"image":"host","init":{"exec":["true"]},"services":[{"internal_port":8080,"shade":1}],"checks":{"up":{"type":"tcp"}}}`,
		"top":        `{"image":"host","init":{"exec":["true"]},"color":{"b":[1,null,{"a":2.50}],"a":9007199254740993}}`,
		"below":      `{"image":"nginx","guest":{"cpus":2,"kernel_args":["quiet"]},"init":{"swap_size_mb":512},"restart":{"policy":"no","gpu_bid_price":0.5}}`,
		"in lists":   `{"image":"nginx","init":{},"files":[{"guest_path":"/a"},{"guest_path":"/b","owner":"me"}],"mounts":[{"path":"/m","shade":"x"}]}`,
		"only there": `{"image":"nginx","init":{},"rootfs":{"persist":"never"},"stop_config":{"grace":{"a":1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var c bourse.Config
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			record, err := codec.Marshal(&c)
			if err != nil {
				t.Fatal(err)
			}
			var stored, again bourse.Config
			if err := codec.Unmarshal(record, &stored); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(stored)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(anyOf(t, text), anyOf(t, string(got))); diff != "" {
				t.Errorf("(-sent +given back):\n%s", diff)
			}
			if err := json.Unmarshal(got, &again); err != nil || !reflect.DeepEqual(again, stored) {
				t.Errorf("read again: %+v, %v\nwant %+v", again, err, stored)
			}
		})
	}
}

func anyOf(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// What is kept goes with the value that it belongs to: what others may not see
// does not come back through it, and an order for quotes has none of it.
func TestWhatIsKeptGoesWithItsValue(t *testing.T) {
	var c bourse.Config
	text := `{"image":"nginx","env":{"A":"b"},"files":[{"guest_path":"/a","note":"hunter2"}],"FILES":[],"color":"red"}`
	if err := json.Unmarshal([]byte(strings.Replace(text, `"FILES":[],`, "", 1)), &c); err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(c.Public())
	if err != nil || string(public) != `{"color":"red","image":"nginx","init":{}}` {
		t.Errorf("public: %s, %v", public, err)
	}
	order := bourse.Order{Config: c}
	if asked := order.Asked(); asked.Config.Rest != nil {
		t.Errorf("asked with %s", asked.Config.Rest)
	}
}

func TestConfigsNestOnlySoDeep(t *testing.T) {
	for levels, ok := range map[int]bool{31: true, 32: false, 5000: false} {
		for _, field := range []string{`"color"`, `"services"`} {
			var c bourse.Config
			value := strings.Repeat("[", levels) + strings.Repeat("]", levels)
			if field == `"services"` {
				value = `[{"x":` + strings.Repeat("[", levels-2) + strings.Repeat("]", levels-2) + `}]`
			}
			if err := json.Unmarshal([]byte(`{"image":"nginx",`+field+`:`+value+`}`), &c); err != nil {
				t.Fatal(err)
			}
			if err := c.Normalize(); (err == nil) != ok || err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%d levels of %s: %v, want ok %t", levels, field, err, ok)
			}
		}
	}
}

// A config that is read keeps its meaning when it is written and read again,
// whatever it has.
func FuzzConfigRest(f *testing.F) {
	for _, seed := range []string{
		`{"image":"a","IMAGE":"b","color":1}`, `{"guest":{"x":1},"Guest":{"y":2}}`, `{"files":[null,{"a":1}]}`, `{"mounts":[{"a":{"b":[{}]}}]}`,
		`{"env":null,"init":{"tty":true,"a":""}}`, `{"requirements":{"slots":2},"task":{"a":1}}`, `{"-":1,"":2,"rest":3,"Rest":4}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c, again bourse.Config
		if json.Unmarshal(body, &c) != nil {
			return
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("%s cannot be written: %v", body, err)
		}
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s was written as %s, which cannot be read: %v", body, text, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(text) {
			t.Errorf("%s was written as %s, then as %s, %v", body, text, second, err)
		}
		if _, err := workload.Review(&c); err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v", body, err)
		}
	})
}
