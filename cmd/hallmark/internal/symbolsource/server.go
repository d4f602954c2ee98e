package symbolsource

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/regular"
	"hallmark/server/client"
	"hallmark/server/remote"
)

// Server names a symbol server.
type Server struct {
	URL       string
	TokenFile string
	Cert, Key string // PEM files
}

// AddFlags adds the flags that name the server, which is asked for what.
func (o *Server) AddFlags(flags *pflag.FlagSet, what string) {
	flags.StringVar(&o.URL, "server", "", what+" at this `URL`, which 'hallmark serve' prints (default: HALLMARK_SERVER)")
	flags.StringVar(&o.TokenFile, "token-file", "", "the token for the server is in this `FILE` (default: HALLMARK_TOKEN has it)")
	flags.StringVar(&o.Cert, "client-cert", "", "show the server the certificate in this PEM `FILE`")
	flags.StringVar(&o.Key, "client-key", "", "the private key of --client-cert, a PEM `FILE` (default: it is in the same)")
}

const maxTokenFile = 4096

// client returns the client of the server, nil where none is named.
func (o *Server) client() (*client.Client, error) {
	if o.URL == "" {
		return nil, nil
	}
	token := os.Getenv("HALLMARK_TOKEN")
	if o.TokenFile != "" {
		b, err := regular.ReadFile(o.TokenFile, maxTokenFile)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(b))
	}
	c, err := client.New(o.URL, token)
	if err != nil {
		return nil, verb.Usage(err)
	}
	if o.Key != "" && o.Cert == "" {
		return nil, verb.Usagef("--client-key takes --client-cert")
	}
	if o.Cert != "" && !strings.HasPrefix(c.URL, "https:") {
		return nil, verb.Usagef("--client-cert takes a server at https://, which %s is not", c.URL)
	}
	if o.Cert != "" {
		pair, err := loadPair(o.Cert, cmp.Or(o.Key, o.Cert))
		if err != nil {
			return nil, err
		}
		c.HTTP = client.WithCertificate(pair)
	}
	return c, nil
}

const maxPEM = 4 << 20

// loadPair reads a certificate and its key.
func loadPair(cert, key string) (tls.Certificate, error) {
	c, err := regular.ReadFile(cert, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := regular.ReadFile(key, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return pair, nil
}

// named returns the client of the server that the flag or the environment names, nil for none.
func (o *Server) named() (*client.Client, error) {
	if o.URL == "" {
		o.URL = os.Getenv("HALLMARK_SERVER")
	}
	return o.client()
}

// SetRemote has a library ask the server, if one is named.
func (o *Server) SetRemote(l *debuginfo.Library, report func(line string)) error {
	c, err := o.named()
	if c == nil || err != nil {
		return err
	}
	l.Remote = &remote.Server{
		Client:     c,
		Warn:       func(err error) { report("symbol server " + Advised(err).Error()) },
		Uncompared: l.Finder.Uncompared,
		Waiting:    func(id buildid.ID) { report("the server is preparing the symbols of " + id.String()) },
	}
	return nil
}

// Advised returns an error of a server with how to give it a token, where it wants one or another one.
func Advised(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		return fmt.Errorf("%w; --token-file FILE or HALLMARK_TOKEN gives a token, which 'hallmark serve token' makes", err)
	}
	return err
}

// Need returns the client where the server has to be named, by the flag or the environment.
func (o *Server) Need() (*client.Client, error) {
	c, err := o.named()
	if c == nil && err == nil {
		err = verb.Usagef("--server URL is missing: 'hallmark serve' prints it")
	}
	return c, err
}
