package channel

import "fmt"

// MaxTrust is the maximum size of an Identity's Trust, in bytes.
const MaxTrust = 16 << 10

// The paths of trusted certificates in the cells. Without
// a Trust the first is empty, the others have what the template trusts.
const (
	TrustDir    = "/etc/ssl/custody"
	TrustFile   = TrustDir + "/ca.pem"   // what Trust held, and nothing else
	TrustJava   = TrustDir + "/java.jks" // TrustBundle's certificates, for Java
	TrustBundle = "/etc/ssl/certs/ca-certificates.crt"

	// TrustJavaPassword opens TrustJava. It protects nothing: the store contains no keys.
	TrustJavaPassword = "changeit"
)

// TrustEnv is what a step's environment must hold, as NAME=value, for its
// tools to trust the certificate in Trust. Most look into TrustBundle by
// themselves on one distribution and into a list of their own on the next.
func TrustEnv() []string {
	var env []string
	for _, name := range []string{
		"SSL_CERT_FILE",      // OpenSSL and so Python, Ruby, Perl, PHP; Go; .NET; rustls
		"CURL_CA_BUNDLE",     // curl
		"GIT_SSL_CAINFO",     // git
		"REQUESTS_CA_BUNDLE", // Python's requests
		"PIP_CERT",
		"HTTPLIB2_CA_CERTS",
		"AWS_CA_BUNDLE",
		"CARGO_HTTP_CAINFO",
		"BUNDLE_SSL_CA_CERT",
		"NIX_SSL_CERT_FILE",
		"HEX_CACERTS_PATH",
		"PERL_LWP_SSL_CA_FILE",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
	} {
		env = append(env, name+"="+TrustBundle)
	}
	return append(env,
		"NODE_EXTRA_CA_CERTS="+TrustFile, // beside Node's own list
		"DENO_CERT="+TrustFile,
		"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore="+TrustJava+" -Djavax.net.ssl.trustStorePassword="+TrustJavaPassword,
	)
}

func (id Identity) check() error {
	if len(id.Trust) > MaxTrust {
		return fmt.Errorf("%d bytes of certificates to be trusted, at most %d are allowed", len(id.Trust), MaxTrust)
	}
	return nil
}
