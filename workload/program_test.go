package workload_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

func TestProgramOf(t *testing.T) {
	for name, c := range map[string]struct {
		config, want string // want is the command, user and environment, or a part of the error
	}{
		"init":                     {`"init":{"entrypoint":["a"],"cmd":["b"]},"env":{"A":"1"}`, `|a|b||A=1|`},
		"none":                     {`"init":{"exec":["a"]},"processes":[]`, `a|||||`},
		"exec":                     {`"init":{"exec":["a"]},"processes":[{"exec":["x","y"]}]`, `x y|||||`},
		"an entrypoint":            {`"init":{"entrypoint":["a"],"cmd":["b"]},"processes":[{"entrypoint":["x"]}]`, `|x||||`},
		"both":                     {`"init":{"exec":["a"]},"processes":[{"entrypoint":["x"],"cmd":["y"]}]`, `|x|y|||`},
		"a cmd":                    {`"init":{"entrypoint":["a"],"cmd":["b"]},"processes":[{"cmd":["y"]}]`, `|a|y|||`},
		"only an environment":      {`"init":{"exec":["a"],"user":"u"},"env":{"A":"1","B":"1"},"processes":[{"env":{"B":"2"}}]`, `a|||u|A=1,B=2|`},
		"a user":                   {`"init":{"exec":["a"],"user":"u"},"processes":[{"user":"v"}]`, `a|||v||`},
		"facts":                    {`"init":{"exec":["a"]},"processes":[{"env_from":[{"env_var":"ME","field_ref":"id"}]}]`, `a|||||ME=id`},
		"an unknown fact":          {`"init":{"exec":["a"]},"processes":[{"env_from":[{"env_var":"ME","field_ref":"secret"}]}]`, `field_ref "secret"`},
		"an invalid variable name": {`"init":{"exec":["a"]},"processes":[{"env_from":[{"env_var":"A=B","field_ref":"id"}]}]`, `env name "A=B"`},
		"a NUL byte":               {`"init":{"exec":["a"]},"processes":[{"cmd":["a\u0000"]}]`, `NUL byte`},
		"secrets":                  {`"init":{"exec":["a"]},"processes":[{"secrets":[{"env_var":"A","name":"B"}],"ignore_app_secrets":true}]`, `a|||||`},
		"a secret without a name":  {`"init":{"exec":["a"]},"processes":[{"secrets":[{"name":"B"}]}]`, `env name ""`},
		"a secret as A=B":          {`"init":{"exec":["a"]},"processes":[{"secrets":[{"env_var":"A=B"}]}]`, `env name "A=B"`},
		"two":                      {`"init":{"exec":["a"]},"processes":[{},{}]`, `2 items`},
		"no host command":          {`"image":"host","processes":[{}]`, `image host needs a command`},
		"a host command":           {`"image":"host","processes":[{"cmd":["a"]}]`, `||a|||`},
	} {
		var in bourse.Config
		if err := json.Unmarshal([]byte(`{"image":"nginx",`+c.config+`}`), &in); err != nil {
			t.Fatal(err)
		}
		_, err := workload.Review(&in)
		p := workload.ProgramOf(&in)
		pairs := func(m map[string]string) string {
			var out []string
			for _, k := range []string{"A", "B", "ME"} {
				if v, ok := m[k]; ok {
					out = append(out, k+"="+v)
				}
			}
			return strings.Join(out, ",")
		}
		got := strings.Join([]string{
			strings.Join(p.Exec, " "), strings.Join(p.Entrypoint, " "), strings.Join(p.Cmd, " "), p.User, pairs(p.Env), pairs(p.From),
		}, "|")
		if err != nil {
			if got = err.Error(); strings.Contains(got, c.want) && bourse.CodeOf(err) == bourse.CodeInvalid {
				continue
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
	}
}

// TestGiven checks that a program gets its app's secrets, unless it ignores them, and the secrets that it requests
// under other names.
func TestGiven(t *testing.T) {
	app := map[string]string{"A": "1", "B": "2"}
	for name, c := range map[string]struct {
		p    workload.Program
		want map[string]string // nil if the program is refused
	}{
		"all":                                 {workload.Program{}, app},
		"none":                                {workload.Program{IgnoreAppSecrets: true}, map[string]string{}},
		"one more":                            {workload.Program{Secrets: []workload.Secret{{EnvVar: "X", Name: "A"}}}, map[string]string{"A": "1", "B": "2", "X": "1"}},
		"one alone":                           {workload.Program{IgnoreAppSecrets: true, Secrets: []workload.Secret{{EnvVar: "B"}}}, map[string]string{"B": "2"}},
		"one, renamed":                        {workload.Program{IgnoreAppSecrets: true, Secrets: []workload.Secret{{EnvVar: "A", Name: "B"}}}, map[string]string{"A": "2"}},
		"a secret that the app does not have": {workload.Program{Secrets: []workload.Secret{{EnvVar: "A", Name: "C"}}}, nil},
	} {
		got, err := c.p.SecretVars(app)
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != (c.want == nil) || err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v (-want +got): %s", name, err, diff)
		}
	}
}

func FuzzProgramOf(f *testing.F) {
	f.Add([]byte(`[{"exec":["a"],"env":{"A":"b"},"env_from":[{"env_var":"A","field_ref":"id"}]}]`))
	f.Add([]byte(`[{"secrets":[{}]},null]`))
	f.Add([]byte(`[{"exec":["a"],"secrets":[{"env_var":"A","name":"B"}],"ignore_app_secrets":true}]`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := bourse.Config{Image: bourse.ImageHost, StoredConfig: bourse.StoredConfig{Processes: raw}}
		if _, err := workload.Review(&c); err == nil && len(raw) > 0 && len(workload.ProgramOf(&c).Command()) == 0 {
			t.Error("a machine with image host but no command was accepted")
		}
	})
}
