package deploy

// file is a configuration in package deploy/config's testdata, and the expected result of
// its deploy.
type file struct {
	name     string
	quick    bool     // deploy the configuration even without -all
	flags    []string // additional flags for deploy
	secret   string   // secret of the app, as NAME=VALUE
	machines int      // expected number of machines, including standbys
	page     string   // expected beginning of the app's page, after the app's name; "" if it has no page
	line     string   // line of shell to run in a machine of the first group
	writes   string   // expected output of line or, if there is none, of the release command
	again    bool     // deploy a change even without -all
	refused  string   // expected error if the deploy is refused
	host     bool     // machines run commands of the workers' hosts instead of an image
	regions  bool     // the groups specify their regions
}

// files lists all configurations. At least one for each kind of section is quick.
var files = []file{
	{name: "autostop-stranded", machines: 2, page: "app: serve"},
	{name: "autostop-suspend", machines: 2, page: "app: serve"},
	{name: "bluegreen", quick: true, machines: 2, page: "app: serve", again: true},
	{name: "bourse-host", machines: 1, host: true, regions: true},
	{name: "bourse-regions", machines: 11, page: "web: serve", regions: true},
	{name: "buildpacks", machines: 2},
	{name: "checks", quick: true, machines: 2, page: "app: serve"},
	{name: "dockerfile", machines: 2, page: "app: serve", line: "echo $NODE_ENV", writes: "production"},
	{name: "experimental", quick: true, machines: 2},
	{name: "files", quick: true, machines: 2, secret: "TLS_KEY=a2V5", line: "cat /etc/app/* /etc/motd", writes: "{\"debug\": false}\nkeyhello"},
	{name: "gpus", quick: true, refused: "w1: the worker has no gpu.l40s"},
	{name: "grpc", machines: 2, page: "app: serve"},
	{name: "host", quick: true, machines: 2, host: true},
	{name: "image-and-dockerfile", refused: "w1: the worker has no gpu.a10"},
	{name: "kernel-args", machines: 2},
	{name: "machine-checks", machines: 2, page: "app: serve"},
	{name: "machine-config", machines: 2, page: "app: serve", line: "id -un; echo $BASE $LEVEL", writes: "nobody\nyes info"},
	{name: "max-unavailable", machines: 2, page: "app: serve"},
	{name: "minimal", machines: 2},
	{name: "multi-service", quick: true, machines: 2},
	{name: "old-forms", machines: 2, page: "app: serve"},
	{name: "no-app-group", machines: 3, line: "cat /etc/letters.conf; grep -c ' /data ' /proc/mounts", writes: "key=value\n1"},
	{name: "old-services", machines: 2, page: "app: serve"},
	{name: "pg-tls", quick: true, machines: 2},
	{name: "processes", quick: true, flags: []string{"--reserve"}, machines: 6, page: "web: bundle exec puma -C config/puma.rb"},
	{name: "release-command-default-size", machines: 4, page: "app: gunicorn site.wsgi", writes: "it has run: "},
	{name: "release-command", quick: true, machines: 2, page: "app: serve", writes: "./bin/rails db:prepare"},
	{name: "restart-limit", machines: 2},
	{name: "statics", machines: 2, page: "app: serve"},
	{name: "udp", machines: 2},
	{name: "very-old", machines: 1, page: "app: serve", line: "grep -c ' /data ' /proc/mounts", writes: "1"},
	{name: "volume", machines: 1, line: "df -m /var/lib/postgresql/data | busybox awk 'END {print ($2 > 19000)}'", writes: "1"},
	{name: "volumes-by-group", quick: true, machines: 2, line: "grep -c ' /data ' /proc/mounts", writes: "1"},
	{name: "web", quick: true, machines: 2, page: "app: serve"},
}

// commands lists the commands that the configurations' machines run.
const commands = "serve work tick bundle node gunicorn python supercronic server train infer store migrate rails"

// deploysAtOnce is the number of configurations that are deployed concurrently. Most of the
// time is spent waiting for checks.
const deploysAtOnce = 6
