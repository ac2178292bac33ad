package documents

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestRecovery types the commands in docs/recovery.md. Before each section, it destroys what the section
// restores.
func TestRecovery(t *testing.T) {
	t.Parallel()
	y := newYard(t, map[string]string{"10.0.0.1": "gru-1", "10.0.0.2": "gru-2"})
	p := y.player(map[string]*terminal{})
	for name, address := range map[string]string{"gru-1": "10.0.0.1", "gru-2": "10.0.0.2", "own": "10.0.0.100"} {
		h := y.host(name, address)
		p.at[name] = h.first
		h.first.must("ln -s " + servertest.Program + " /usr/local/bin/bourse && mkdir -p /run/systemd/system /etc/systemd/system && rm -rf /etc/bourse")
	}
	sections := map[string][]block{}
	for _, b := range read(t, "docs/recovery.md") {
		sections[b.section] = append(sections[b.section], b)
	}
	section := func(name string) {
		t.Helper()
		if len(sections[name]) == 0 {
			t.Fatalf("docs/recovery.md has no section %q with blocks", name)
		}
		p.play(sections[name])
		delete(sections, name)
	}
	first, second, own := p.at["gru-1"], p.at["gru-2"], p.at["own"]

	first.must("bourse init --region gru")
	p.names["TOKEN"] = ids["TOKEN"].FindString(p.soon(first, "bourse token join"))
	second.must("bourse join " + p.names["TOKEN"])
	p.allowHost(second)
	p.lists("gru-2 .*ok ")
	p.soon(first, "bourse app create web")
	p.soon(first, "bourse secrets set -a web KEY=old")
	section("Before anything is lost")
	own.must("test $(stat -c %a /var/lib/gru-1.tar) = 600")

	// What was destroyed since the backup must not return. What was created since must.
	p.soon(first, "bourse app create later")
	p.soon(first, "bourse machine run host -a web --region gru --name kept -- sleep 1000")
	p.soon(first, "bourse sql \"SELECT name FROM machines WHERE worker = 'gru-2'\" | grep kept") // the other hosts have its row
	p.crash(second)
	second.must("rm -rf /var/lib/bourse")
	p.lists("gru-2 .*DOWN ")
	section("A worker's data")
	if lost := first.must("cat lost.json"); !strings.Contains(lost, `"kept"`) {
		t.Errorf("the file of saved machines does not contain the lost machine: %s", lost)
	}
	p.lists("gru-2 .*ok ")
	p.until(first, "no machine is listed", "bourse machine list -a web", func(out string) bool { return !strings.Contains(out, "kept") })

	p.crash(second)
	second.must("rm -rf /var/lib/bourse /etc/bourse")
	p.lists("gru-2 .*DOWN ")
	const joins = "A host with a worker or a proxy"
	removal, join := sections[joins][:1], sections[joins][1:]
	p.play(removal)
	p.nextSecond(first)
	p.play(join)
	delete(sections, joins)
	p.allowHost(second)
	p.lists("gru-2 .*ok ")
	p.soon(first, "bourse machine run host -a web --region gru --name survivor -- sleep 1000")
	p.soon(first, "bourse view health | grep '^4 members agree'") // gru-2 receives the app later

	p.crash(first)
	first.must("rm -rf /var/lib/bourse /etc/bourse ~/.config")
	const broker = "A host with a broker, or every broker"
	p.play(sections[broker][:2])
	p.until(first, "the app that is newer than the backup is listed", "bourse app list", func(out string) bool { return strings.Contains(out, "later") })
	p.play(sections[broker][2:])
	delete(sections, broker)
	p.until(first, "the machine of the surviving worker is listed", "bourse machine list -a web", func(out string) bool { return strings.Contains(out, "survivor") })

	first.must("rm /etc/bourse/issuer.pem")
	reloaded := p.reloads(first, "issuer.pem")
	section("The issuer's key")
	reloaded()

	section("The CA's key")
	token := ids["TOKEN"].FindString(p.soon(first, "bourse token join --region gru"))
	p.soon(first, "bourse member remove --yes --force gru-2")
	p.nextSecond(first)
	p.crash(second)
	second.must("rm -rf /var/lib/bourse /etc/bourse && bourse join " + token)
	p.lists("gru-2 .*ok ")
	if _, err := admission.Load(admission.Files{CA: y.hosts["gru-1"].dir + home + "/new-ca/ca.pem", Pair: y.hosts["gru-2"].dir + "/etc/bourse/gru-2.pem"}); err != nil {
		t.Errorf("the certificate is not from the new CA: %v", err)
	}

	section("The secrets key")
	if got := first.must("cat /etc/bourse/secrets.key"); got != own.must("cat other/secrets.key") || got == own.must("cat config/secrets.key") {
		t.Error("the broker does not have the new secrets key")
	}

	second.must("rm /etc/bourse/gossip.key; systemctl stop bourse")
	section("The gossip key")
	p.lists("gru-2 .*ok ")

	p.crash(first)
	p.crash(second)
	first.must("rm -rf /var/lib/bourse /etc/bourse ~/.config")
	second.must("rm -rf /var/lib/bourse /etc/bourse")
	section("Every host")
	p.until(first, "the app is listed again", "bourse app list", func(out string) bool { return strings.Contains(out, "web") })
	p.until(first, "the secret is listed again", "bourse secrets list -a web", func(out string) bool { return strings.Contains(out, "KEY") })
	for name := range sections {
		t.Errorf("section %q was not run", name)
	}
	p.crash(first)
}

// nextSecond waits until a certificate can be issued that is newer than the removal of a server. The times in
// certificates are whole seconds.
func (p *player) nextSecond(t *terminal) {
	p.Helper()
	t.must("now=$(date +%s); while test $(date +%s) = $now; do sleep 0.05; done")
}

// crash kills all of a host's processes except its shell.
func (p *player) crash(t *terminal) {
	p.Helper()
	t.must("kill -KILL -1; while pgrep -v -x bash >/dev/null; do sleep 0.05; done; true")
}

// allowHost makes a host's worker run commands of the host, which need no containerd.
func (p *player) allowHost(t *terminal) {
	p.Helper()
	t.must("printf 'allow-host = true\\nno-limits = true\\n' >> /etc/bourse/bourse.toml && systemctl restart bourse")
}

// lists waits until a line of "bourse worker list" on gru-1 matches a pattern of grep -E.
func (p *player) lists(pattern string) {
	p.Helper()
	p.soon(p.at["gru-1"], "bourse worker list | grep -E '"+pattern+"'")
}

// soon repeats a line until it succeeds, and returns its output.
func (p *player) soon(t *terminal, line string) string {
	p.Helper()
	out, status := "", ""
	for range 300 {
		if out, status = t.line(line); status == "0" {
			return out
		}
		t.must("sleep 0.2")
	}
	p.Fatalf("%s\nexits with status %s:\n%s%s", line, status, out, p.logs())
	return ""
}

// reloads returns a function that waits until a host's servers have loaded a file again.
func (p *player) reloads(t *terminal, file string) func() {
	p.Helper()
	count := "grep -c 'changed files loaded.*/" + file + "' /run/bourse.log"
	before, _ := t.line(count)
	return func() { p.until(t, file+" is loaded", count, func(out string) bool { return out != before }) }
}

// until repeats a line until its output is as expected.
func (p *player) until(t *terminal, what, line string, done func(out string) bool) {
	p.Helper()
	out := ""
	for range 300 {
		if out, _ = t.line(line); done(out) {
			return
		}
		t.must("sleep 0.2")
	}
	p.Fatalf("%s: timed out; %s printed\n%s%s", what, line, out, p.logs())
}
