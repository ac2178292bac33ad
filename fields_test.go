package bourse_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	fly "github.com/superfly/fly-go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// TestFieldsNameEveryMemberThatClientsSend checks that Fields has an entry for every member that
// clients send. It fails if fly-go is updated to a release that sends additional members.
func TestFieldsNameEveryMemberThatClientsSend(t *testing.T) {
	for _, path := range members(reflect.TypeFor[fly.LaunchMachineInput](), "") {
		if !named(path) {
			t.Errorf("fly-go sends %s, but bourse.Fields has no entry for it", path)
		}
	}
	ours := slices.Concat(members(reflect.TypeFor[machinesapi.CreateMachine](), ""), members(reflect.TypeFor[machinesapi.UpdateMachine](), ""), members(reflect.TypeFor[bourse.DNS](), "config.dns."))
	ours = slices.DeleteFunc(ours, func(path string) bool { return slices.Contains(added, path) })
	for _, path := range ours {
		if !named(path) {
			t.Errorf("the API decodes %s, but bourse.Fields has no entry for it", path)
		}
	}
	for _, f := range bourse.Fields() {
		by := []bourse.FieldTreatment{f.Host, f.Pull, f.Image}
		if slices.Contains(by, bourse.FieldSupported) && !slices.Contains(ours, f.Path) && !slices.Contains(whole, f.Path) && !slices.Contains(elsewhere, f.Path) {
			t.Errorf("bourse.Fields lists %s as supported, but nothing decodes it", f.Path)
		}
		if f.Reason == "" && slices.ContainsFunc(by, func(t bourse.FieldTreatment) bool { return t != bourse.FieldSupported }) {
			t.Errorf("%s is not supported, but its entry has no reason", f.Path)
		}
	}
}

// added contains the members that Bourse adds to a request outside of its config. It also contains
// config.dns, which has no entry of its own, only entries for its members.
var added = []string{"deadline", "race", "first_try", "reservation", "config.dns"}

// elsewhere contains the entries for parts of a config that package bourse only stores. Packages
// network and workload decode them.
var elsewhere = []string{
	"config.dns.options[]", "config.services[]", "config.services[].checks[]", "config.checks.*", "config.processes[]",
}

// whole contains the entries that apply to everything below them.
var whole = []string{
	"config.env", "config.metadata", "config.requirements", "config.task", "config.dns.dns_forward_rules",
	"config.containers", "config.volumes",
}

// named reports whether there is an entry for a member.
func named(path string) bool {
	return slices.ContainsFunc(bourse.Fields(), func(f bourse.Field) bool {
		switch {
		case f.Path == path, strings.TrimRight(f.Path, "[].*") == path:
			return true
		case slices.Contains(whole, f.Path):
			return strings.HasPrefix(path, f.Path+"[") || strings.HasPrefix(path, f.Path+".")
		}
		below, ok := strings.CutPrefix(path, f.Path+".")
		return ok && slices.Contains(strings.Fields(f.Members), below)
	})
}

// members returns the paths of all members in the JSON form of type t.
func members(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && deep(t.Elem()):
		return members(t.Elem(), strings.TrimSuffix(path, ".")+"[].")
	case t.Kind() == reflect.Map && deep(t.Elem()) && t.Elem() != reflect.TypeFor[bourse.Requirement]():
		return members(t.Elem(), path+"*.")
	case !deep(t):
		return []string{strings.TrimSuffix(path, ".")}
	}
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "", name == "-", !f.IsExported():
		default:
			out = append(out, members(f.Type, path+name+".")...)
		}
	}
	return out
}

// deep reports whether the JSON form of a type has members.
func deep(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.Name() != "Duration"
}

func TestReview(t *testing.T) {
	const (
		unknown  = `unknown to Bourse: stored and returned, but without effect`
		instance = `stored and returned, but without effect: clients select a machine with the header fly-force-instance-id`
		services = `config.services: stored and returned, but without effect: proxies cannot reach a program that a poller runs`
		stranded = `config.services[0].ports: no service has ports: the machine is stopped unless it keeps itself awake, and no request starts it again`
	)
	for name, tt := range map[string]struct {
		body string
		want string // expected warnings or error
	}{
		"nothing":          {`"image":"nginx"`, ""},
		"empty members":    {`"image":"nginx","schedule":"","standbys":[],"processes":null,"containers":[],"dns":{},"metrics":null,"disable_machine_autostart":false`, ""},
		"services":         {`"image":"nginx","services":[{"internal_port":80},{"internal_port":81}]`, ""},
		"ports of pull":    {`"image":"pull","init":{"exec":["x"]},"services":[{"internal_port":80},{"internal_port":81}]`, services},
		"stranded":         {`"image":"nginx","services":[{"internal_port":80,"autostop":true}]`, stranded},
		"no such port":     {`"image":"nginx","services":[{"internal_port":70000}]`, "invalid config.services[0].internal_port 70000: use 1 to 65535, or none for the machine's $PORT"},
		"checks":           {`"image":"nginx","checks":{"a":{"port":1},"b":{"port":2}}`, ""},
		"checks of pull":   {`"image":"pull","init":{"exec":["a"]},"checks":{"a":{"port":1},"b":{"port":2}}`, "config.checks: stored and returned, but without effect: the ports of a program that a poller runs cannot be reached"},
		"unknown":          {`"image":"nginx","color":"red","guest":{"shade":{"a":1}}`, "config.color: unknown to Bourse: stored and returned, but without effect\nconfig.guest.shade.a: unknown to Bourse: stored and returned, but without effect"},
		"in a service":     {`"image":"nginx","services":[{"internal_port":80,"color":"red","ports":[{"port":80,"tls_options":{"shade":1}}],"force_instance_key":"a"}]`, strings.Join([]string{"config.services[].color: " + unknown, "config.services[].force_instance_key: " + instance, "config.services[].ports[].tls_options.shade: " + unknown}, "\n")},
		"in its checks":    {`"image":"nginx","services":[{"internal_port":80,"checks":[{"type":"tcp","restart_limit":3}]}]`, "config.services[].checks[].restart_limit: " + unknown},
		"in a check":       {`"image":"nginx","checks":{"a":{"port":1,"headers":[{"name":"x","values":["y"],"only":true}],"successes":2}}`, "config.checks.*.headers[].only: " + unknown + "\nconfig.checks.*.successes: " + unknown},
		"headers' names":   {`"image":"nginx","services":[{"internal_port":80,"ports":[{"port":80,"handlers":["http"],"http_options":{"response":{"headers":{"X-Any":"a"}}}}]}]`, ""},
		"other letters":    {`"image":"nginx","services":[{"Internal_Port":80}]`, ""},
		"in a process":     {`"image":"nginx","processes":[{"cmd":["a"],"env":{"ANY":"1"},"nice":5,"secrets":[{"env_var":"A","as":"b"}]}]`, "config.processes[].nice: " + unknown + "\nconfig.processes[].secrets[].as: " + unknown},
		"in a task":        {`"image":"nginx","task":{"name":"a","retries":3}`, "config.task.retries: " + unknown},
		"in an option":     {`"image":"nginx","dns":{"options":[{"name":"ndots","value":"1","only":"a"}]}`, "config.dns.options[].only: " + unknown},
		"a strange name":   {`"image":"nginx","a\nb":1`, `config."a\nb": unknown to Bourse: stored and returned, but without effect`},
		"a terminal":       {`"image":"host","init":{"exec":["a"],"tty":true}`, "config.init.tty: stored and returned, but without effect: only a machine with a registry image has its own terminal"},
		"of an image":      {`"image":"nginx","init":{"tty":true}`, ""},
		"schedule":         {`"image":"nginx","schedule":"daily"`, ""},
		"standbys of pull": {`"image":"pull","init":{"exec":["x"]},"standbys":["148e21aabbccdd"]`, "invalid config.standbys: if a poller is lost, the next poller that asks for work replaces it"},
		"processes":        {`"image":"nginx","processes":[{"cmd":["a"]}]`, ""},
		"containers":       {`"image":"nginx","containers":[{"name":"a"}]`, "invalid config.containers: a machine runs one program: create a machine for each container"},
		"persist":          {`"image":"nginx","rootfs":{"persist":"always"}`, "invalid config.rootfs.persist: a machine's root file system is recreated from its image at each start: use a volume for persistent data"},
		"persist, number":  {`"image":"nginx","rootfs":{"persist":3}`, "invalid config.rootfs.persist: a machine's root file system is recreated from its image at each start: use a volume for persistent data"},
		"persist never":    {`"image":"nginx","rootfs":{"persist":"never"},"guest":{"persist_rootfs":1}`, ""},
		"its old name":     {`"image":"nginx","guest":{"persist_rootfs":"restart"}`, "invalid config.guest.persist_rootfs: a machine's root file system is recreated from its image at each start: use a volume for persistent data"},
		"image's config":   {`"image":"nginx","files":[{"guest_path":"/a","image_config":"b"}]`, "invalid config.files[].image_config: files cannot be created from an image's config yet"},
		"dedication":       {`"image":"nginx","guest":{"host_dedication_id":"x"}`, "invalid config.guest.host_dedication_id: workers are chosen by their labels: use requirements"},
		"a poller's user":  {`"image":"pull","init":{"exec":["a"],"user":"nobody"}`, "invalid config.init.user: the poller decides which user runs the program"},
		"read-only host":   {`"image":"host","init":{"exec":["a"]},"rootfs":{"read_only":true}`, "invalid config.rootfs.read_only: only a machine with a registry image has its own root file system"},
	} {
		t.Run(name, func(t *testing.T) {
			var c bourse.Config
			if err := json.Unmarshal([]byte("{"+tt.body+"}"), &c); err != nil {
				t.Fatal(err)
			}
			if err := c.Normalize(); err != nil {
				t.Fatal(err)
			}
			warnings, err := workload.Review(&c)
			got := ""
			if err == nil {
				lines := make([]string, len(warnings))
				for i, w := range warnings {
					lines[i] = w.String()
				}
				got = strings.Join(lines, "\n")
			} else if got = bourse.MessageOf(err); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("code %s", bourse.CodeOf(err))
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestWarningsAreBounded checks that the number of warnings is limited, however many unknown
// members a request has.
func TestWarningsAreBounded(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"image":"nginx"`)
	for i := range 1000 {
		body.WriteString(`,"m` + strings.Repeat("x", i%200) + string(rune('a'+i%26)) + `":1`)
	}
	body.WriteString("}")
	var c bourse.Config
	if err := json.Unmarshal([]byte(body.String()), &c); err != nil {
		t.Fatal(err)
	}
	warnings, err := workload.Review(&c)
	total := 0
	for _, w := range warnings {
		total += len(w.String())
	}
	if err != nil || len(warnings) == 0 || len(warnings) > 32 || total > 8<<10 {
		t.Errorf("got %d warnings of %d bytes, %v; want 1 to 32 warnings of at most 8 KiB", len(warnings), total, err)
	}
}

func BenchmarkReview(b *testing.B) {
	c := bourse.Config{Image: "nginx", Env: map[string]string{"A": "1", "B": "2"}, Metadata: map[string]string{"role": "web"}}
	if err := c.Normalize(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := workload.Review(&c); err != nil {
			b.Fatal(err)
		}
	}
}

// TestConfigKeepsUnknownMembers checks that a member for which Bourse has no field is returned in
// its original place, at every depth, even after the config was stored.
func TestConfigKeepsUnknownMembers(t *testing.T) {
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
				t.Errorf("the returned config differs (-sent +returned):\n%s", diff)
			}
			if err := json.Unmarshal(got, &again); err != nil || !reflect.DeepEqual(again, stored) {
				t.Errorf("decoded again: got %+v, %v\nwant %+v", again, err, stored)
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

// TestUnknownMembersAreRemovedWithTheirParent checks that removing a value also removes the unknown
// members inside it. For example, the public part of a config must not contain the unknown members
// of a value that is not public. A request for a quote must not contain any unknown members.
func TestUnknownMembersAreRemovedWithTheirParent(t *testing.T) {
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
	if asked := order.ForQuote(); asked.Config.Rest != nil {
		t.Errorf("got unknown members %s in the request for a quote, want none", asked.Config.Rest)
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
				t.Errorf("%s with %d levels: got error %v, want valid: %t", field, levels, err, ok)
			}
		}
	}
}

// FuzzConfigRest checks that a config, whatever it contains, keeps its meaning when it is encoded
// and decoded again.
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
			t.Fatalf("encode %s: %v", body, err)
		}
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s was encoded as %s, which cannot be decoded: %v", body, text, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(text) {
			t.Errorf("%s was encoded as %s, then as %s: %v", body, text, second, err)
		}
		if _, err := workload.Review(&c); err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v", body, err)
		}
	})
}
