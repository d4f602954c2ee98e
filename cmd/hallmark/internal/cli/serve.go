package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/cachedir"
	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/server"
	"hallmark/server/blob"
	"hallmark/server/blob/s3blob"
	"hallmark/server/forward"
	"hallmark/server/indexer"
	"hallmark/server/scan"
	"hallmark/server/store"
	symbolindex "hallmark/server/symbols"
)

const serveLong = `Serve stores files by build ID and serves them over HTTP: to debuggers,
profilers and all other clients of debuginfod, and to other machines that run
Hallmark.

'hallmark push' sends files. The server reads the identity of a file from its
bytes, and refuses a file whose identity differs from the one that the client
claims. It keeps and shows two files of different code that claim one identity;
it serves that of the more trusted origin: the operator, then CI, then upstream
servers, then agents.

Without flags the server listens on 127.0.0.1:8002 and keeps its files below
$XDG_DATA_HOME, and everybody on this machine may use it. An address that other
machines reach takes --tokens and --tls-cert, or --insecure. Clients have the
roles of their tokens, or of the names of their certificates (--client-ca).

--store s3://BUCKET/PREFIX keeps the files in a bucket of S3 or of a compatible
service that knows If-Match and If-None-Match. Any number of servers may work
over one bucket or directory. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION and AWS_ENDPOINT_URL are as for other programs;
s3://BUCKET/PREFIX?endpoint=URL&region=REGION says the same.

--scan DIR serves packages (.deb, .rpm, tar) and ELF files of a directory
without copying them first: the server reads which build IDs are in them, at
start and when they change, and takes a file into the store when somebody asks
for it.

The server asks --upstream for files that it lacks, or the servers that
DEBUGINFOD_URLS names: once for each file, however many ask. It checks the build
ID of what comes, and keeps it. A redirect leads to another host only if
--upstream-redirect names it. A miss on all servers is remembered for two
minutes.

POST /v1/symbolize turns file offsets into functions and lines. The index of a
file is made when it is first asked for, in a process of its own that can take
--index-memory and can open nothing, and kept in the store.

Requests, memory and connections are shared between clients: a token, a
certificate, or an address (of IPv6 a network, /64). Clients without a token
take nothing from those with one. A client that sends or takes less than 1 KiB a
second, or 100 bytes with a token, for 30 seconds is cut. Clients behind a proxy
are one, unless --trusted-proxy names its network.

--limit-requests and --limit-upload bound what one client may take in the long
run. The answer is 429 then, and says when to come again.

POST /v1/rewrite answers with a profile (pprof, OTLP) that has names, of files
in the store.

--forward URL takes OTLP profiles (POST /v1development/profiles, or gRPC) and
passes them on by HTTP to a collector or backend at URL, with functions, lines
and inlined calls where the store has the files. All else in a message stays as
it is. Messages wait in memory, --forward-queue MiB of them, and are sent again
as OTLP has it; when there is no room, the answer is 503. --forward-headers FILE
has headers for URL, a line each ("Authorization: Bearer ..."). Senders take a
token with one of the roles upload:ci and upload:agent.

POST /v1/profiles keeps a profile as it came: pprof's, a recording by perf, the
text of perf script, folded stacks, OTLP. /profiles/ID is its page, with the
names that the server has when somebody looks, and /profiles/ID?base=OTHER
compares two. 'hallmark push --profile' sends one. The oldest profiles make room
for new ones: see --profile-age, --profile-size and --profile-count.

All files are kept, unless --keep-age or --keep-size says otherwise: then
identities are removed that nobody used, which 'hallmark serve gc --help'
describes. Of several servers of a store one does that.

A browser gets pages at /: search, binaries, what is missing, profiles, health.
With --tokens a form takes a token with the role read, and symbolize for
profiles.

/healthz, /readyz and /metrics (Prometheus) are for machines. SIGTERM and Ctrl-C
end the server when the requests that are under way are answered.`

const serveExample = `  hallmark serve                                      # for this machine
  hallmark push --server http://127.0.0.1:8002 ./prog
  DEBUGINFOD_URLS=http://127.0.0.1:8002 gdb ./prog

  hallmark serve --scan /srv/packages
  hallmark serve token --tokens t.json --name ci --role upload:ci --role read
  hallmark serve --listen :8002 --tokens t.json --tls-cert c.pem --tls-key k.pem
  hallmark serve --forward http://collector.example:4318   # names for OTLP
  hallmark serve --store 's3://symbols/prod?endpoint=https://minio.example'`

type serveOptions struct {
	listen    string
	store     string
	cache     string
	scan      []string
	rescan    verb.TimeSpan
	upstream  []string
	redirects []string
	proxies   []string
	noUp      bool
	tokens    string
	insecure  bool
	cert, key string
	clientCA  string
	cors      bool
	readOnly  bool
	maxFile   int64
	memory    int64
	logFormat string

	indexMemory int64
	quiet       bool
	keep        keepFlags
	profiles    profileFlags
	viewMemory  int64 // MiB
	gcEvery     verb.TimeSpan
	checkEvery  verb.TimeSpan
	requests    int64 // a second
	uploadMiB   int64 // a day

	forward      string
	headers      string
	forwardQueue int64 // MiB
}

// defaultListen is the port of elfutils' server.
const defaultListen = "127.0.0.1:8002"

func newServeCommand(e *verb.Env) *cobra.Command { return serveCommand(e, new(serveOptions)) }

// serveCommand returns a command with these options.
func serveCommand(e *verb.Env, opt *serveOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve [flags]",
		Short:   "Store files by build ID, and serve them to debuggers and profilers",
		Long:    serveLong,
		Example: serveExample,
		Args:    subcommandsAlone,
		RunE: func(*cobra.Command, []string) error {
			ctx, over := verb.Interruptible()
			defer over()
			return runServe(ctx, e, opt)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opt.listen, "listen", defaultListen, "serve at `HOST:PORT`, port 0 takes a free one")
	f.StringVar(&opt.store, "store", "", "keep the files in this `DIR`, or in a bucket: s3://BUCKET/PREFIX (default: hallmark/server in $XDG_DATA_HOME)")
	f.StringVar(&opt.cache, "cache", "", "keep what can be made again, and files in the making, in this `DIR` (default: hallmark/server in the user's cache directory)")
	f.StringArrayVar(&opt.scan, "scan", nil, "serve what is in the packages and ELF files below this `DIR`, too (can be repeated)")
	opt.rescan = verb.TimeSpan(time.Minute)
	f.Var(&opt.rescan, "rescan", "look for new and changed files below --scan so often")
	f.StringArrayVar(&opt.upstream, "upstream", nil, "ask the debuginfod server at this `URL` for what is not here (can be repeated; default: DEBUGINFOD_URLS)")
	f.StringArrayVar(&opt.redirects, "upstream-redirect", nil, "follow redirects of --upstream to this `HOST` or HOST:PORT, too (can be repeated)")
	f.BoolVar(&opt.noUp, "no-upstream", false, "ask no other server, though DEBUGINFOD_URLS names some")
	f.StringVar(&opt.tokens, "tokens", "", "answer those alone who have a token of this `FILE`, which 'serve token' writes")
	f.BoolVar(&opt.insecure, "insecure", false, "listen on an address that other machines reach without tokens, or without TLS")
	f.StringVar(&opt.cert, "tls-cert", "", "serve HTTPS with the certificates in this PEM `FILE`")
	f.StringVar(&opt.key, "tls-key", "", "the private key, a PEM `FILE`")
	f.StringVar(&opt.clientCA, "client-ca", "", "answer those alone who have a certificate of an authority in this PEM `FILE`")
	f.StringArrayVar(&opt.proxies, "trusted-proxy", nil, "believe X-Forwarded-For of proxies in this network, as `CIDR` (can be repeated)")
	f.BoolVar(&opt.cors, "cors", false, "let scripts of all web sites ask for files and their names in a browser (CORS)")
	f.BoolVar(&opt.readOnly, "read-only", false, "take no files")
	f.Int64Var(&opt.maxFile, "max-file", store.DefaultMaxFile>>20, "refuse files of more than so many `MiB`")
	f.Int64Var(&opt.memory, "memory", 16, "keep so many `MiB` of what was read in memory")
	f.Int64Var(&opt.indexMemory, "index-memory", 4096, "let the process that makes an index take so many `MiB`")
	f.Int64Var(&opt.requests, "limit-requests", 0, "let a client make this `NUMBER` of requests a second, and at once ten times as many; 0 sets no limit")
	f.Int64Var(&opt.uploadMiB, "limit-upload", 0, "let a client upload this many `MiB` a day; 0 sets no limit")
	f.StringVar(&opt.forward, "forward", "", "take OTLP profiles and pass them on, with names, to the collector or backend at this `URL`")
	f.StringVar(&opt.headers, "forward-headers", "", "send the headers in this `FILE` with --forward, one in a line: NAME: VALUE")
	f.Int64Var(&opt.forwardQueue, "forward-queue", forward.DefaultMaxQueue>>20, "let so many `MiB` of messages wait to be passed on")
	opt.keep.addFlags(f)
	opt.profiles.addFlags(f)
	f.Int64Var(&opt.viewMemory, "view-memory", 1024, "let the profiles that are shown take so many `MiB`")
	opt.gcEvery = verb.TimeSpan(24 * time.Hour)
	f.Var(&opt.gcEvery, "gc-every", "remove so often what need not be kept, as 'serve gc' does, 0 for never")
	opt.checkEvery = verb.TimeSpan(7 * 24 * time.Hour)
	f.Var(&opt.checkEvery, "check-every", "read the store so often, in idle time, and look for lost files, as 'serve check' does, 0 for never")
	f.StringVar(&opt.logFormat, "log", "text", "write the log as `FORMAT`: text or json")
	f.BoolVar(&opt.quiet, "quiet", false, "log failures alone, not each request")
	verb.CompleteValues(cmd, "log", "text", "json")
	cmd.AddCommand(newServeTokenCommand(e), newServeGCCommand(e), newServeCheckCommand(e), newServePinCommand(true), newServePinCommand(false))
	return cmd
}

// check refuses options that do not go together.
func (o *serveOptions) check() error {
	host, _, err := net.SplitHostPort(o.listen)
	switch {
	case err != nil:
		return verb.Usagef("--listen %w", err)
	case (o.cert == "") != (o.key == ""):
		return verb.Usagef("serve: --tls-cert and --tls-key go together")
	case o.clientCA != "" && o.cert == "":
		return verb.Usagef("serve: --client-ca takes --tls-cert")
	case o.logFormat != "text" && o.logFormat != "json":
		return verb.Usagef("serve: --log %q is neither text nor json", o.logFormat)
	case o.rescan <= 0:
		return verb.Usagef("serve: --rescan is a time above 0")
	case o.maxFile <= 0 || o.memory <= 0 || o.indexMemory <= 0 || o.viewMemory <= 0 || o.viewMemory > 1<<30:
		return verb.Usagef("serve: --max-file, --memory, --index-memory and --view-memory are numbers of MiB above 0")
	case o.requests < 0 || o.requests > 1<<30 || o.uploadMiB < 0 || o.uploadMiB > 1<<40:
		return verb.Usagef("serve: --limit-requests and --limit-upload are numbers of 0 or more")
	case o.headers != "" && o.forward == "":
		return verb.Usagef("serve: --forward-headers are for --forward")
	case o.forwardQueue <= 0 || o.forwardQueue > 1<<20:
		return verb.Usagef("serve: --forward-queue is a number of MiB above 0")
	case o.checkEvery != 0 && time.Duration(o.checkEvery) < time.Minute:
		return verb.Usagef("serve: --check-every is 0, or a minute or more")
	case o.gcEvery != 0 && time.Duration(o.gcEvery) < time.Minute:
		return verb.Usagef("serve: --gc-every is 0, or a minute or more")
	case o.readOnly && o.keep != keepFlags{}:
		return verb.Usagef("serve: --keep-age and --keep-size remove files, which --read-only forbids")
	case o.gcEvery == 0 && o.keep != keepFlags{}:
		return verb.Usagef("serve: with --gc-every 0 nothing is removed, so --keep-age and --keep-size are of no use")
	case !isLoopbackHost(host) && !o.insecure && (o.tokens == "" && o.clientCA == "" || o.cert == ""):
		return verb.Usagef("serve: other machines reach %s: this takes --tokens (or --client-ca) and --tls-cert, or --insecure", o.listen)
	}
	return errors.Join(o.keep.check(), o.profiles.check())
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// runServe serves until ctx is done.
func runServe(ctx context.Context, e *verb.Env, opt *serveOptions) error {
	if err := opt.check(); err != nil {
		return err
	}
	level := slog.LevelInfo
	if opt.quiet {
		level = slog.LevelWarn
	}
	var log slog.Handler = slog.NewTextHandler(e.Stderr, &slog.HandlerOptions{Level: level})
	if opt.logFormat == "json" {
		log = slog.NewJSONHandler(e.Stderr, &slog.HandlerOptions{Level: level})
	}
	c := server.Config{Tokens: opt.tokens, Open: opt.insecure || opt.clientCA != "", CORS: opt.cors, ReadOnly: opt.readOnly, Log: slog.New(log), CollectEvery: time.Duration(opt.gcEvery), CheckEvery: time.Duration(opt.checkEvery), Retention: opt.keep.retention()}
	cachedir.OnDamage(nil) // the indexes of a server log it
	c.Retention.Profiles, c.OpenedMemory = opt.profiles.retention(), opt.viewMemory<<20
	c.Limits = server.Limits{Requests: opt.requests, UploadBytes: opt.uploadMiB << 20}
	if opt.readOnly { // it would make an empty one
		if _, _, err := storeInfo(opt.store); err != nil {
			return err
		}
	}
	done, err := opt.openStore(&c)
	if err != nil {
		return err
	}
	defer done()
	if c.TrustedProxies, err = opt.trustedProxies(); err != nil {
		return err
	}
	if opt.tokens != "" {
		if _, err := server.ReadTokens(opt.tokens); err != nil {
			return err
		}
	}
	if c.Upstream, err = opt.openUpstream(); err != nil {
		return err
	}
	if c.Forward, err = opt.openForwarder(); err != nil {
		return err
	}
	security, admits, err := opt.tls()
	if err != nil {
		return err
	}
	c.Admits = admits
	l, err := net.Listen("tcp", opt.listen)
	if err != nil {
		return err
	}
	if security != nil {
		l = tls.NewListener(l, security)
	}
	scanner, err := opt.openScanner(&c)
	if err != nil {
		return err
	}
	c.Symbols = &symbolindex.Indexes{Store: c.Store, Dir: filepath.Join(opt.cache, "index"), ReadOnly: opt.readOnly, Log: c.Log, Limits: indexer.Limits{Memory: opt.indexMemory << 20}}
	if err := checkStore(ctx, c.Store.Blobs); err != nil {
		return err
	}
	verb.CollectServing()
	s := server.New(c)
	go s.Follow(ctx)
	if scanner != nil {
		go scanner.Watch(ctx, time.Duration(opt.rescan))
	}
	scheme := "http"
	if security != nil {
		scheme = "https"
	}
	fmt.Fprintf(e.Stdout, "Serving %s from %s%s until Ctrl-C\n", scheme+"://"+shownAddress(opt.listen, l.Addr()), c.Store.Blobs, opt.shownUpstream(c.Upstream))
	return s.Serve(ctx, l)
}

// storeTime is how long a store may take for its first answer.
const storeTime = 15 * time.Second

// checkStore returns why a store does not answer: a mistake in its name or its keys is to be seen at once, and not by
// those who ask the server.
func checkStore(ctx context.Context, s blob.Store) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	for _, err := range s.List(ctx, "ready/") {
		if err != nil {
			return fmt.Errorf("the store %s does not answer: %w", s, err)
		}
		break
	}
	return nil
}

// shownAddress returns where a server that listens is reached: at the host that was asked for, or at the name of this
// machine where it listens on all addresses.
func shownAddress(asked string, got net.Addr) string {
	host, _, _ := net.SplitHostPort(asked) // it was checked
	_, port, err := net.SplitHostPort(got.String())
	if err != nil {
		return got.String()
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil || host == "" {
			host = "localhost"
		}
	}
	return net.JoinHostPort(host, port)
}

// openStore opens the store and the directory for files in the making.
func (o *serveOptions) openStore(c *server.Config) (done func(), err error) {
	if o.cache == "" {
		if o.cache, err = cachedir.InUserCache("server"); err != nil {
			return nil, fmt.Errorf("%w: name a directory with --cache", err)
		}
	}
	if o.cache, err = filepath.Abs(o.cache); err != nil {
		return nil, err
	}
	if err := cachedir.Check(o.cache); err != nil {
		return nil, fmt.Errorf("%w: name a directory with --cache", err)
	}
	scratch := filepath.Join(o.cache, "scratch")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	c.Store = &store.Store{Scratch: scratch, MaxFile: o.maxFile << 20, CacheSize: o.memory << 20}
	blobs, closeBlobs, err := openBlobs(o.store)
	if err != nil {
		return nil, err
	}
	c.Store.Blobs = blobs
	return func() { c.Store.Close(); closeBlobs() }, nil
}

// openBlobs opens a bucket, or a directory, "" for that of this user.
func openBlobs(at string) (blobs blob.Store, done func(), err error) {
	if strings.HasPrefix(at, "s3:") {
		s3, err := s3blob.Open(at, os.Getenv)
		return s3, func() {}, err
	}
	if strings.Contains(at, "://") {
		return nil, nil, verb.Usagef("--store %q is neither a directory nor s3://BUCKET/PREFIX", at)
	}
	if at == "" {
		if at, err = dataDir(); err != nil {
			return nil, nil, err
		}
	}
	dir, err := blob.OpenDir(at)
	if err != nil {
		return nil, nil, err
	}
	return dir, func() { dir.Close() }, nil
}

// dataDir returns where this user's files are kept by default. Root in the environment of another
// user, as with sudo -E, would follow that user's links, and serve what that user put there: the
// error wraps cachedir.ErrShared then.
func dataDir() (string, error) {
	base := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%w: name a directory with --store", err)
		}
		base = filepath.Join(home, ".local", "share")
	}
	dir := filepath.Join(base, "hallmark", "server")
	if err := cachedir.Check(dir); err != nil {
		return "", fmt.Errorf("%s: %w: name a directory with --store", dir, verb.ReasonOf(err))
	}
	return dir, nil
}

// openScanner returns what looks at the directories of --scan, nil for none.
func (o *serveOptions) openScanner(c *server.Config) (*scan.Scanner, error) {
	if len(o.scan) == 0 {
		return nil, nil
	}
	if o.readOnly {
		return nil, verb.Usagef("serve: --scan takes files into the store, which --read-only forbids")
	}
	s := &scan.Scanner{Store: c.Store, Log: c.Log}
	hash := sha256.New()
	for _, dir := range o.scan {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(abs); err == nil && !info.IsDir() {
			return nil, verb.Usagef("serve: --scan %s is no directory", plaintext.Name(abs))
		}
		s.Dirs = append(s.Dirs, abs)
		fmt.Fprintln(hash, abs)
	}
	s.Cache = filepath.Join(o.cache, fmt.Sprintf("scan2-%x.json.zst", hash.Sum(nil)[:8]))
	c.Local = s
	return s, nil
}

// missTime is how long the server remembers that no upstream server has a file: they have some
// minutes after they were asked for.
const missTime = 2 * time.Minute

// openUpstream returns the client of upstream servers, nil for none.
func (o *serveOptions) openUpstream() (*debuginfod.Client, error) {
	if o.noUp || o.readOnly {
		return nil, nil
	}
	c, err := debuginfod.FromEnvironment()
	if err != nil {
		return nil, err
	}
	if len(o.upstream) > 0 {
		c.URLs = nil
		for _, text := range o.upstream {
			u, err := url.Parse(text)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return nil, verb.Usagef("serve: --upstream: %q is no URL of HTTP", text)
			}
			c.URLs = append(c.URLs, strings.TrimRight(text, "/"))
		}
	}
	if len(c.URLs) == 0 {
		return nil, nil
	}
	c.Dir, c.MaxSize = filepath.Join(o.cache, "upstream"), o.maxFile<<20
	c.MissTime = missTime
	c.SameHost, c.RedirectHosts = true, o.redirects
	return c, c.Check()
}

// shownUpstream returns which servers are asked, and who said so, for the line that the server begins with; "" for none.
func (o *serveOptions) shownUpstream(c *debuginfod.Client) string {
	if c == nil {
		return ""
	}
	by := "--upstream"
	if len(o.upstream) == 0 {
		by = "DEBUGINFOD_URLS"
	}
	return fmt.Sprintf(", and what it lacks from %s (%s),", strings.Join(strings.Fields(plaintext.Line(c.String())), " and "), by)
}

// trustedProxies returns the networks of --trusted-proxy. An address is a network of its own.
func (o *serveOptions) trustedProxies() (networks []netip.Prefix, err error) {
	for _, text := range o.proxies {
		p, err := netip.ParsePrefix(text)
		if ip, isAddress := netip.ParseAddr(text); err != nil && isAddress == nil {
			p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return nil, verb.Usagef("serve: --trusted-proxy %q is no network, such as 10.0.0.0/8", text)
		}
		networks = append(networks, p)
	}
	return networks, nil
}

const maxHeaders = 64 << 10 // bytes of --forward-headers

// openForwarder returns what passes profiles on, nil for none.
func (o *serveOptions) openForwarder() (*forward.Forwarder, error) {
	if o.forward == "" {
		return nil, nil
	}
	to, err := forward.ParseURL(o.forward)
	if err != nil {
		return nil, verb.Usagef("serve: --forward: %w", err)
	}
	f := &forward.Forwarder{URL: to, Header: http.Header{}, MaxQueue: o.forwardQueue << 20}
	if o.headers == "" {
		return f, nil
	}
	b, err := regular.ReadFile(o.headers, maxHeaders)
	if err != nil {
		return nil, err
	}
	for n, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\"(),/:;<=>?@[\\]{}") {
			return nil, fmt.Errorf("%s: line %d is no header: NAME: VALUE", plaintext.Name(o.headers), n+1)
		}
		f.Header.Add(name, strings.TrimSpace(value))
	}
	return f, nil
}

const maxPEM = 4 << 20

// tls returns how HTTPS is served, nil for HTTP. A new certificate and new authorities of clients are taken
// up without a restart. admits returns an error if the server no longer takes the client of a connection; it is nil
// where the server asks for no certificate.
func (o *serveOptions) tls() (config *tls.Config, admits func(*tls.ConnectionState) error, err error) {
	if o.cert == "" {
		return nil, nil, nil
	}
	if _, err := o.pair(); err != nil {
		return nil, nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := o.pair()
		return &pair, err
	}
	if o.clientCA == "" {
		return c, nil, nil
	}
	a := &authorities{name: o.clientCA, common: c}
	if _, err := a.config(); err != nil {
		return nil, nil, err
	}
	return &tls.Config{MinVersion: c.MinVersion, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.config() }}, a.admits, nil
}

// pair reads the certificate and its key.
func (o *serveOptions) pair() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	var file *fs.PathError // which has its name
	if err != nil && !errors.As(err, &file) {
		err = fmt.Errorf("--tls-cert %s with --tls-key %s: %w", plaintext.Name(o.cert), plaintext.Name(o.key), err)
	}
	return pair, err
}

// authorities are those whose certificates clients must have, as a file has them now.
type authorities struct {
	name   string
	common *tls.Config

	mu   sync.Mutex
	text []byte
	last *tls.Config // for that text
}

// config returns how a connection is secured. While the file has no certificates, none is.
func (a *authorities) config() (*tls.Config, error) {
	b, err := regular.ReadFile(a.name, maxPEM)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil && bytes.Equal(a.text, b) {
		return a.last, nil
	}
	// crypto/tls resumes no session whose certificate has no authority in ClientCAs.
	c := &tls.Config{MinVersion: a.common.MinVersion, NextProtos: a.common.NextProtos, GetCertificate: a.common.GetCertificate}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificates in it", a.name)
	}
	a.text, a.last = b, c
	return c, nil
}

// admits returns an error if an authority was taken out of the file, or a certificate has expired, since a connection
// was made.
func (a *authorities) admits(state *tls.ConnectionState) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, chain := range state.VerifiedChains {
		expired := func(one *x509.Certificate) bool { return now.After(one.NotAfter) }
		root := chain[len(chain)-1]
		if _, err := root.Verify(x509.VerifyOptions{Roots: c.ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil && !slices.ContainsFunc(chain, expired) {
			return nil
		}
	}
	return errors.New("the certificate of this connection has expired, or its authority is taken no longer")
}

const serveTokenLong = `Make a token for those who may use a server, add it to a file of tokens and
print it. The file has its hash alone, so the token is shown this once. A server
that runs reads the file again within seconds.

Roles are read (files, sections, sources), symbolize, upload:ci (files, trusted
as those of who builds them), upload:agent (files, trusted as those of any
machine: they never take the place of CI's) and admin, which has all of them and
may pin identities.

Clients of debuginfod send a token where DEBUGINFOD_HEADERS_FILE names a file
with the line 'Authorization: Bearer TOKEN'. 'hallmark push' and others take it
from --token-file or HALLMARK_TOKEN.

--certificate makes no token: clients whose certificate has this name have the
roles. Names are dns:NAME, uri:URI and email:ADDRESS of its subjectAltName, and
cn:NAME of its subject. The server takes --client-ca for it.`

func newServeTokenCommand(e *verb.Env) *cobra.Command {
	var file, name, certificate string
	var roles []string
	var expires verb.TimeSpan
	var remove bool
	cmd := &cobra.Command{
		Use:   "token --tokens FILE --name NAME --role ROLE...",
		Short: "Make a token for those who may use a server",
		Long:  serveTokenLong,
		Example: `  hallmark serve token --tokens t.json --name ci --role upload:ci --expires 720h
  hallmark serve token --tokens t.json --name ci --remove
  hallmark serve token --tokens t.json --name n --role read --certificate cn:n`,
		Args: verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if file == "" || name == "" || len(roles) == 0 && !remove {
				return verb.Usagef("token: --tokens, --name and --role are needed")
			}
			if certificate != "" {
				if _, err := server.ParseCertificateName(certificate); err != nil {
					return verb.Usage(err)
				}
			}
			return changeTokens(e, file, name, certificate, roles, time.Duration(expires), remove)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "tokens", "", "the `FILE` of tokens, which is made if need be")
	f.StringVar(&name, "name", "", "`NAME` of the token, which the server shows beside what came by it")
	f.StringArrayVar(&roles, "role", nil, "`ROLE` of the token (can be repeated)")
	f.StringVar(&certificate, "certificate", "", "clients whose certificate has this `NAME` have the roles, in place of a token")
	f.Var(&expires, "expires", "the token is of no use after this time, 0 for no end")
	f.BoolVar(&remove, "remove", false, "remove the token with this name")
	verb.CompleteValues(cmd, "role", "read", "symbolize", "upload:ci", "upload:agent", "admin")
	return cmd
}

func changeTokens(e *verb.Env, file, name, certificate string, roles []string, expires time.Duration, remove bool) error {
	tokens, err := server.ReadTokens(file)
	if err != nil && (remove || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	var kept []server.Token
	for _, t := range tokens {
		if t.Name != name {
			kept = append(kept, t)
		}
	}
	found := len(kept) < len(tokens)
	switch {
	case remove && !found:
		return fmt.Errorf("%s: no token is called %q", file, name)
	case remove:
		return server.WriteTokens(file, kept)
	case found:
		return fmt.Errorf("%s: a token is called %q already: remove it, or take another name", file, name)
	}
	var parsed []server.Role
	for _, r := range roles {
		role, err := server.ParseRole(r)
		if err != nil {
			return verb.Usage(err)
		}
		parsed = append(parsed, role)
	}
	var end time.Time
	if expires < 0 {
		return verb.Usage(fmt.Errorf("--expires %v is in the past", expires))
	}
	if expires > 0 {
		end = time.Now().Add(expires).UTC().Truncate(time.Second)
	}
	if certificate != "" {
		return server.WriteTokens(file, append(kept, server.Token{Name: name, Roles: parsed, Certificate: certificate, Expires: end}))
	}
	token, secret := server.NewToken(name, parsed, end)
	if err := server.WriteTokens(file, append(kept, token)); err != nil {
		return err
	}
	fmt.Fprintln(e.Stdout, secret)
	return nil
}
