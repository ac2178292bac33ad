package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents lists the documents to run, relative to the root of the repository.
var documents = []string{"README.md", "docs/operations.md", "docs/pull.md", "docs/deploy.md", "docs/recovery.md"}

// block is a fenced block of a document.
type block struct {
	line   int    // line number of the opening fence
	info   string // text after the opening fence, such as sh
	verb   string // from the comment before the block: run, file, shows, or ""
	hosts  []string
	path   string // path of the file, if verb is file
	text   string
	inFile string // name of the document

	section string // heading above the block
}

var directive = regexp.MustCompile(`^<!-- (run|file|shows)(?:: (.*))? -->$`)

// read returns the blocks of a document.
func read(t *testing.T, name string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	section := ""
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		if heading, ok := strings.CutPrefix(lines[i], "## "); ok {
			section = heading
		}
		info, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			continue
		}
		b := block{line: i + 1, info: info, inFile: name, section: section}
		if m := directive.FindStringSubmatch(lines[max(0, i-1)]); m != nil {
			b.verb, b.hosts = m[1], strings.Fields(m[2])
			if b.verb == "file" {
				b.path, b.hosts = b.hosts[len(b.hosts)-1], b.hosts[:len(b.hosts)-1]
			}
		}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			b.text += lines[i] + "\n"
		}
		out = append(out, b)
	}
	return out
}

// commands returns the lines to type. It omits comments, and joins lines that end with a
// backslash.
func (b *block) commands() []string {
	var out []string
	for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// typedByDeploy is the reason why blocks in docs/deploy.md are not run.
const typedByDeploy = "deploy.txtar types similar commands, with an existing app"

// notRun lists blocks of commands that no test runs, by their first line, with the reason.
var notRun = map[string]string{
	"bin/bourse machine run nginx --region gru --port 80":                             "the image comes from Docker Hub, which tests cannot reach; operations.md runs an image from a private registry",
	"apt-get install ./bourse_1.0.0_amd64.deb":                                        "TestDebianPackage installs, upgrades and removes the package",
	"apt-get install ./bourse_1.1.0_amd64.deb":                                        "TestDebianPackage installs, upgrades and removes the package",
	"docker load --input bourse_1.0.0_amd64.image.tar":                                "TestContainerImage imports the image and runs a proxy in it",
	`docker run -d --name bourse --restart always --stop-timeout 60 --network host \`: "TestContainerImage runs a proxy in the image",
	"bourse deploy --plan":                                                            typedByDeploy,
	"bourse deploy --resume":                                                          typedByDeploy,
	"bourse doctor":                                                                   "TestJoin types the command on each of its hosts",
	"bourse releases":                                                                 typedByDeploy,
	"bourse scale show":                                                               typedByDeploy,

	"cd /etc/bourse": "TestRenewalUnderLoad types these commands with other files and addresses",

	"bourse credentials rotate gossip":                     "TestRotateKeys types it",
	"bourse credentials rotate ca --dir /media/usb/bourse": "TestRotateKeys types the command with another directory",

	"make check test":                                     "this test is part of the command",
	"bourse worker drain gru-1 --plan":                    "fleet.txtar and TestDrainUnderLoad drain workers",
	"docker build -t registry.example.com:5000/hello:1 .": "the hosts have no Docker; the test pushes this image itself",
	"apt-get install -y nats-server":                      "the hosts are namespaces of a host on which it is installed",
	"apt-get install -y containerd":                       "the hosts are namespaces of a host on which it is installed",
	"export FLY_{FLAPS,API,UIEX}_BASE_URL=http://127.0.0.1:4280 FLY_API_TOKEN=$BOURSE_API_TOKEN": "tests cannot install flyctl; broker/flycompat/testdata contains the requests that it sends",
	"bourse token create ci --app web --expiry 720h":                                             "token.txtar types a similar command, with an existing machine",
}

// notTyped lists lines in other blocks that no test types, with the reason.
var notTyped = map[string]string{
	"make build": "the test has built the program itself",
}

// ends contains the exit status of lines that must not exit with 0.
var ends = map[string]string{
	"bin/bourse quote host --vm-memory 64GiB -- true": "6", // no worker has that much memory
}

// TestEveryBlockIsRun checks that every block of commands is either run or listed in
// notRun.
func TestEveryBlockIsRun(t *testing.T) {
	found := map[string]bool{}
	for _, name := range documents {
		for _, b := range read(t, name) {
			if b.info != "sh" {
				continue
			}
			first, _, _ := strings.Cut(b.text, "\n")
			first, _, _ = strings.Cut(first, "  #")
			first = strings.TrimSpace(first)
			_, listed := notRun[first]
			found[first] = true
			if is := b.verb == "run" || b.verb == "file"; is == listed {
				t.Errorf("%s:%d: the block that begins with %q is run: %v, and is listed in notRun: %v; want exactly one of the two", name, b.line, first, is, listed)
			}
		}
	}
	for first := range notRun {
		if !found[first] {
			t.Errorf("notRun contains %q, but no block begins with this line", first)
		}
	}
}

// shown returns an expression that matches the printed version of a line in a document. It
// accepts any space between words, and anything for "…".
func shown(line string) *regexp.Regexp {
	var parts []string
	for part := range strings.SplitSeq(line, "…") {
		parts = append(parts, strings.Join(strings.Fields(regexp.QuoteMeta(part)), `\s+`))
	}
	return regexp.MustCompile(strings.Join(parts, ".*"))
}

// missing returns the lines of the block that were not printed, or not in this order.
func (b *block) missing(printed string) []string {
	rest := strings.Split(printed, "\n")
	var out []string
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(line); line == "" || line == "…" {
			continue
		}
		at := slices.IndexFunc(rest, shown(line).MatchString)
		if at < 0 {
			out = append(out, line)
			continue
		}
		rest = rest[at+1:]
	}
	return out
}

func TestShown(t *testing.T) {
	b := block{text: "NAME   STATE\n…\ngru-1  … ok  … free …\n"}
	if left := b.missing("NAME STATE\nx\ngru-1   ok 3 cpus free\n"); len(left) > 0 {
		t.Errorf("missing lines %q, want none", left)
	}
	if left := b.missing("gru-1 ok, free\nNAME STATE\n"); len(left) != 1 {
		t.Errorf("missing lines %q, want one, because the order matters", left)
	}
}
