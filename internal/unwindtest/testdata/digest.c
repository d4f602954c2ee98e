// libcrypto: assembler that makes its own stack frames, with call frame information
// that says so by expressions.
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include "corpus.h"

static volatile unsigned sink;
static unsigned char data[4096], out[4096 + 64];

static void digest(const EVP_MD *md)
{
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned len;
	if (EVP_Digest(data, sizeof data, sum, &len, md, NULL))
		sink += sum[0];
}

static void cipher(const EVP_CIPHER *c)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int len;
	if (EVP_EncryptInit_ex(ctx, c, NULL, data, data + 64) && EVP_EncryptUpdate(ctx, out, &len, data, sizeof data))
		sink += out[0];
	EVP_CIPHER_CTX_free(ctx);
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	EVP_PKEY *key = EVP_RSA_gen(1024);
	while (corpus_more()) {
		digest(EVP_md5());
		digest(EVP_sha1());
		digest(EVP_sha256());
		digest(EVP_sha512());
		digest(EVP_sha3_256());
		digest(EVP_blake2b512());
		cipher(EVP_aes_128_cbc());
		cipher(EVP_aes_256_gcm());
		cipher(EVP_aes_256_ctr());
		cipher(EVP_chacha20_poly1305());
		cipher(EVP_camellia_128_cbc());
		EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
		unsigned char sig[256], sum[32] = {1};
		size_t len = sizeof sig;
		if (EVP_PKEY_sign_init(ctx) > 0 && EVP_PKEY_sign(ctx, sig, &len, sum, sizeof sum) > 0)
			sink += sig[0];
		EVP_PKEY_CTX_free(ctx);
	}
	EVP_PKEY_free(key);
	return 0;
}
